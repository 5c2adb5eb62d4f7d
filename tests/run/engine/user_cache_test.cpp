// needs: none. The user's cache where it is off or has no place, and how much it may hold.
#include "run/engine/cache/user_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

// The environment as it was, behind a test.
class UserCache : public testing::Test {
 protected:
  static constexpr const char* kNames[] = {"LUMEN_CACHE", "XDG_CACHE_HOME", "HOME", "LUMEN_CACHE_LIMIT"};
  UserCache() {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
      ::unsetenv(name);
    }
  }
  ~UserCache() override {
    set_cache_limit(-1);
    for (const auto& [name, value] : before_)
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(UserCache, OffIsNoTrouble) {
  EXPECT_TRUE(is_cache_off("off"));
  EXPECT_FALSE(is_cache_off(""));
  ::setenv("LUMEN_CACHE", "off", 1);
  EXPECT_TRUE(is_cache_off(""));
  EXPECT_EQ(open_cache("")->trouble(), "");
}

TEST_F(UserCache, WithoutAHomeThereIsOneWarning) {
  testing::internal::CaptureStderr();
  const auto cache = open_cache("");
  (void)open_cache("");
  EXPECT_FALSE(cache->usable());
  cache->write("tokens", "a", "x");
  EXPECT_EQ(cache->read("tokens", "a"), "");
  EXPECT_NE(cache->trouble().find("neither HOME nor XDG_CACHE_HOME is set"), std::string::npos);
  // One for the process: another test may have had it.
  const std::string words = testing::internal::GetCapturedStderr();
  EXPECT_EQ(words.find("warning"), words.rfind("warning")) << words;
}

TEST_F(UserCache, HasALimit) {
  EXPECT_EQ(cache_limit(), kCacheLimit);
  ::setenv("LUMEN_CACHE_LIMIT", "3G", 1);
  EXPECT_EQ(cache_limit(), int64_t{3} << 30);
  ::setenv("LUMEN_CACHE_LIMIT", "much", 1);
  EXPECT_THROW((void)cache_limit(), Error);
  set_cache_limit(1000);
  EXPECT_EQ(cache_limit(), 1000);
  const TemporaryFolder folder;
  const auto cache = open_cache(folder.path().string());
  for (int i = 0; i < 10; ++i) cache->write("plans", std::to_string(i), std::string(300, 'x'));
  int64_t bytes = 0;
  for (const SealedKind& kind : list_sealed(folder.path())) bytes += kind.bytes;
  EXPECT_LE(bytes, 1000);
}

}  // namespace
}  // namespace lumen::run
