// Needs: none. Means and deviations of few measurements.
#include "apps/spread/spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lumen::apps {
namespace {

TEST(Spread, OfASample) {
  const Spread s = spread_of(std::vector<double>{2, 4, 9});
  EXPECT_DOUBLE_EQ(s.mean, 5);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(13.0));
  EXPECT_EQ(s.count, 3);
}

TEST(Spread, FewerThanTwoHaveNone) {
  EXPECT_EQ(spread_of({}).mean, 0);
  EXPECT_EQ(spread_of({}).deviation, 0);
  const Spread one = spread_of(std::vector<double>{7});
  EXPECT_EQ(one.mean, 7);
  EXPECT_EQ(one.deviation, 0);
}

}  // namespace
}  // namespace lumen::apps
