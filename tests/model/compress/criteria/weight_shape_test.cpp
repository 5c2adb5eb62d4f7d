// needs: cpu. Shapes of weights: sides, tails, and what is lost of each.
#include "model/compress/criteria/weight_shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/model/compress/round/moments.h"

namespace lumen::model::compress {
namespace {

TEST(WeightShape, AsymmetryIsTheMiddleOne) {
  // Groups of four: even, all positive from 1 to 3, and leaning: (4 - 2) / (4 + 2).
  const std::vector<float> w = {-1, 0, 0.5F, 1, 1, 2, 3, 1, -2, 0, 1, 4};
  EXPECT_NEAR(median_asymmetry(w, 4), 1.0 / 3, 1e-12);
  EXPECT_EQ(median_asymmetry(std::vector<float>(8, 1), 4), 0);  // groups without a range say nothing
  EXPECT_EQ(median_asymmetry({}, 4), 0);
  EXPECT_LT(median_asymmetry(normals(4096, 3), 64), 0.2);
}

TEST(WeightShape, TheTailIsSeenApart) {
  std::vector<float> w = normals(10000, 4);
  w[5] = 40;
  std::vector<float> y = w;
  y[5] = 30;
  const ShapeErrors far = shape_errors(w, y, {});
  EXPECT_NEAR(far.tail, 100.0 / 1600, 1e-6);
  EXPECT_LT(far.all, 0.02);
  y = w;
  y[6] += 0.5F;
  const ShapeErrors near = shape_errors(w, y, {});
  EXPECT_EQ(near.tail, 0);
  EXPECT_GT(near.all, 0);
  // Columns that count nothing lose nothing.
  std::vector<float> counts(100, 1);
  counts[6] = 0;
  EXPECT_EQ(shape_errors(w, y, counts).all, 0);
  EXPECT_EQ(shape_errors({}, {}, {}).all, 0);
}

}  // namespace
}  // namespace lumen::model::compress
