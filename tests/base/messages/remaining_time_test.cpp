#include "base/messages/remaining_time.h"

#include <gtest/gtest.h>

namespace lumen {
namespace {

// A part of 100 s whose first 30 % are done after a second: the pace of the phase after it counts.
TEST(RemainingTime, TakesThePaceOfThePhase) {
  RemainingTime time(10);
  EXPECT_EQ(time.left(0, 0, 0), 0);
  (void)time.left(0, 0.3, 1);
  double left = 0;
  for (int second = 2; second <= 20; ++second) left = time.left(0, 0.3 + 0.7 * (second - 1) / 99, second);
  EXPECT_NEAR(left, 980, 10);
}

TEST(RemainingTime, TakesTheMeanOfPartsThatAreDone) {
  RemainingTime time(4);
  (void)time.left(0, 0.5, 10);
  (void)time.left(1, 0, 40);
  EXPECT_DOUBLE_EQ(time.left(1, 0.9, 50), 30 + 2 * 40);
  EXPECT_DOUBLE_EQ(time.left(1, 0.95, 100), 2 * 40);  // longer than those before
  EXPECT_DOUBLE_EQ(time.left(3, 0.5, 120), 40);
}

// Work that goes on with a later part counts only what it did itself.
TEST(RemainingTime, GoesOn) {
  RemainingTime time(10);
  (void)time.left(7, 0, 0);
  EXPECT_DOUBLE_EQ(time.left(8, 0, 6), 12);
}

}  // namespace
}  // namespace lumen
