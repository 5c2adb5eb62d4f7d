#include "base/naming.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

std::string message_of(const std::string& thrown) {
  try {
    naming("folder/model.bin", [&]() -> int { throw Error(Exit::numeric, thrown, "look there"); });
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_EQ(e.hint(), "look there");
    return e.what();
  }
  return "nothing";
}

TEST(Naming, AnErrorNamesItsFileOnce) {
  EXPECT_EQ(message_of("7 is too many"), "folder/model.bin: 7 is too many");
  EXPECT_EQ(message_of("/other/spelling/model.bin: 7 is too many"), "/other/spelling/model.bin: 7 is too many");
  EXPECT_EQ(naming("a", [] { return 3; }), 3);
}

}  // namespace
}  // namespace lumen
