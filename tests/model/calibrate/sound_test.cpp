// needs: none. Sums that mean nothing are dropped, matrix by matrix, and columns of no importance keep a little.
#include "model/calibrate/sound.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lumen::model::calibrate {
namespace {

TapSums tap(int64_t matrices, std::vector<float> squares) {
  TapSums t;
  t.tap.matrices = matrices;
  t.tap.columns = std::ssize(squares) / std::max<int64_t>(matrices, 1);
  t.rows = 5;
  if (matrices > 0) t.counts.assign(matrices, 5);
  t.squares = std::move(squares);
  return t;
}

TEST(Sound, SumsThatMeanNothingAreDropped) {
  std::vector<TapSums> taps{tap(0, {1, 0, 2}), tap(0, {1, NAN, 2}), tap(0, {0, 0, 0}), tap(0, {1, INFINITY, 2})};
  const auto why = drop_unsound(taps);
  EXPECT_EQ(why[0], "");
  EXPECT_EQ(taps[0].squares, (std::vector<float>{1, 0, 2}));
  EXPECT_NE(why[1].find("not finite"), std::string::npos);
  EXPECT_NE(why[2].find("all zero"), std::string::npos);
  EXPECT_NE(why[3].find("not finite"), std::string::npos);
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(taps[i].rows_of(0), 0) << i;
    EXPECT_EQ(taps[i].squares, (std::vector<float>{0, 0, 0})) << i;
  }
}

TEST(Sound, OfStackedWeightsOnlyTheBrokenMatrixIs) {
  std::vector<TapSums> taps{tap(3, {1, 2, NAN, 4, 0, 0}), tap(2, {1, 2, 0, 0})};
  const auto why = drop_unsound(taps);
  EXPECT_NE(why[0].find("1 of 3"), std::string::npos) << why[0];
  EXPECT_EQ(taps[0].counts, (std::vector<float>{5, 0, 0}));
  EXPECT_EQ(taps[0].squares, (std::vector<float>{1, 2, 0, 0, 0, 0}));
  EXPECT_EQ(why[1], "");  // as an expert that no row reached
  EXPECT_EQ(taps[1].counts, (std::vector<float>{5, 0}));
}

TEST(Sound, ColumnsOfNoImportanceCountALittle) {
  std::vector<float> some{0, 2, 4, 0};
  raise_zeros(some);
  EXPECT_FLOAT_EQ(some[0], 3e-6F);
  EXPECT_FLOAT_EQ(some[3], 3e-6F);
  EXPECT_EQ(some[1], 2);
  std::vector<float> none{0, 0}, all{1, 2}, empty;
  raise_zeros(none);
  raise_zeros(all);
  raise_zeros(empty);
  EXPECT_EQ(none, (std::vector<float>{1, 1}));
  EXPECT_EQ(all, (std::vector<float>{1, 2}));
  EXPECT_TRUE(empty.empty());
}

}  // namespace
}  // namespace lumen::model::calibrate
