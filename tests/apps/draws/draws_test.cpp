// Needs: none. Numbers drawn on the host: the same for the same seed and place, others elsewhere, spread as they should
// be.
#include "apps/draws/draws.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace lumen {
namespace {

TEST(Draws, FollowFromSeedAndPlace) {
  EXPECT_EQ(Draws(1, 2, 3).next(), Draws(1, 2, 3).next());
  EXPECT_NE(Draws(1, 2, 3).next(), Draws(1, 3, 2).next());
  EXPECT_NE(Draws(1, 2, 3).next(), Draws(2, 2, 3).next());
}

TEST(Draws, AreSpreadEvenlyAndNormally) {
  constexpr int kCount = 200'000;
  Draws draws(7);
  std::map<int64_t, int> counts;
  double sum = 0, squares = 0, fourths = 0;
  for (int i = 0; i < kCount; ++i) {
    ++counts[draws.below(6)];
    const double u = draws.uniform(), n = draws.normal();
    ASSERT_TRUE(u >= 0 && u < 1 && std::isfinite(n));
    sum += n;
    squares += n * n;
    fourths += n * n * n * n;
  }
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(counts[i], kCount / 6.0, 5 * std::sqrt(kCount / 6.0));
  EXPECT_NEAR(sum / kCount, 0, 0.015);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourths / kCount, 3, 0.15);
}

}  // namespace
}  // namespace lumen
