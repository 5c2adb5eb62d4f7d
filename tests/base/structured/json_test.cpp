// needs: none. JSON: strict reading.
#include "base/structured/json.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"

namespace lumen::model {
namespace {

TEST(Json, RefusesWhatIsAmbiguousOrDeep) {
  EXPECT_EQ(parse_json(" {\"a\": [1, {\"b\": null}]} ", "t")["a"][0], 1);
  EXPECT_THROW(parse_json("{\"a\":1,\"a\":2}", "t"), Error);
  EXPECT_THROW(parse_json("{\"x\":{\"a\":1,\"b\":0,\"a\":2}}", "t"), Error);
  EXPECT_THROW(parse_json("{\"a\":1} x", "t"), Error);
  EXPECT_THROW(parse_json("", "t"), Error);
  EXPECT_THROW(parse_json("\"\xff\"", "t"), Error);
  EXPECT_THROW(parse_json(std::string(1000000, '['), "t"), Error);
  EXPECT_THROW(parse_json("[[1]]", "t", 1), Error);
  EXPECT_EQ(parse_json("[[1]]", "t", 2)[0][0], 1);
  EXPECT_THROW(parse_json("1e999", "t"), Error);
}

// Lists of objects in time linear in their length.
TEST(Json, ManyObjects) {
  std::string text = "[";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}{{\"n\": {}, \"l\": [1], \"o\": {{}}}}", i ? "," : "", i);
  const auto start = std::chrono::steady_clock::now();
  const auto parsed = parse_json(text + "]", "t");
  EXPECT_EQ(parsed.size(), 200'000U);
  EXPECT_EQ(parsed[199'999]["n"], 199'999);
  EXPECT_EQ(parsed.dump(), nlohmann::json::parse(text + "]").dump());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Json, TypedMembers) {
  const auto o = parse_json(R"({"n": 3, "s": "x", "b": true, "z": null, "big": 18446744073709551615, "f": 1.5})", "t");
  EXPECT_EQ(json_integer(o, "n", "t"), 3);
  EXPECT_EQ(json_text(o, "s", "t"), "x");
  EXPECT_TRUE(json_boolean(o, "b", false, "t"));
  EXPECT_TRUE(json_boolean(o, "z", true, "t"));
  EXPECT_THROW(json_integer(o, "big", "t"), Error);
  EXPECT_THROW(json_integer(o, "f", "t"), Error);
  EXPECT_THROW(json_text(o, "n", "t"), Error);
  EXPECT_THROW(json_boolean(o, "n", true, "t"), Error);
  EXPECT_THROW(json_member(o, "missing", "t"), Error);
  EXPECT_THROW(json_print(std::string("\xff"), "t"), Error);
}

}  // namespace
}  // namespace lumen::model
