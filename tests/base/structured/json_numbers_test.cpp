// Needs: none. Numbers of JSON: what is none, too large, or in no list is refused by name.
#include "base/structured/json_numbers.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/structured/json.h"

namespace lumen {
namespace {

TEST(JsonNumbers, AreReadOrRefusedByName) {
  const auto o = parse_json(
      R"({"n": 3, "f": -1.5, "s": "x", "t": "18446744073709551615", "l": [1, 2.5], "mixed": [1, "2"], "none": [],
          "many": "18446744073709551616", "sign": "-1", "empty": ""})",
      "t");
  EXPECT_EQ(json_real(o, "n", "t"), 3);
  EXPECT_EQ(json_real(o, "f", "t"), -1.5);
  EXPECT_THROW((void)json_real(o, "s", "t"), Error);
  EXPECT_THROW((void)json_real(o, "absent", "t"), Error);
  EXPECT_EQ(json_within(o, "n", 0, 3, "t"), 3);
  EXPECT_THROW((void)json_within(o, "n", 4, 9, "t"), Error);
  EXPECT_THROW((void)json_within(o, "f", -9, 9, "t"), Error);
  EXPECT_EQ(json_number(o, "t", "t"), UINT64_MAX);
  for (const char* key : {"s", "many", "sign", "empty", "n"})
    EXPECT_THROW((void)json_number(o, key, "t"), Error) << key;
  EXPECT_EQ(json_reals(o, "l", "t"), (std::vector<double>{1, 2.5}));
  EXPECT_TRUE(json_reals(o, "none", "t").empty());
  EXPECT_THROW((void)json_reals(o, "n", "t"), Error);
  EXPECT_THROW((void)json_reals(o, "mixed", "t"), Error);
  try {
    (void)json_real(o, "s", "a file");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "a file: \"s\" is no number");
  }
}

}  // namespace
}  // namespace lumen
