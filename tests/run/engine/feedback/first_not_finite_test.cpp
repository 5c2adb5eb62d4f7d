// Needs: cpu.
#include "run/engine/feedback/first_not_finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace lumen::run {
namespace {

TEST(FirstNotFinite, IsFoundWhereverItStands) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(first_not_finite({}));
  std::vector<float> x(1000003, std::numeric_limits<float>::max());
  EXPECT_FALSE(first_not_finite(x));
  for (const int64_t at : {1000002, 999999, 65536, 65535, 1, 0}) {  // before all that were broken already
    x[static_cast<size_t>(at)] = at % 2 == 0 ? kNan : -kInfinity;
    EXPECT_EQ(first_not_finite(x), at);
  }
}

}  // namespace
}  // namespace lumen::run
