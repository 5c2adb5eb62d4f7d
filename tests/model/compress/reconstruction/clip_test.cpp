// needs: cpu. Fields fitted under factors of ranges, and how a loss moves with the factors.
#include "model/compress/reconstruction/clip.h"

#include <gtest/gtest.h>

#include "tests/model/compress/reconstruction/reconstruction_case.h"

namespace lumen::model::compress {
namespace {

TEST(ClippedFit, FactorsStretchRanges) {
  run::Engine& e = reconstruction_engine();
  const FormatRef f = reconstruction_format("int4_g32_asym");
  std::vector<float> w(64);
  for (int i = 0; i < 64; ++i) w[i] = (i % 32) - 10;  // -10..21
  ClippedFit clip(e, f, 1, 64, w, {});
  EXPECT_EQ(clip.fit(), e.encode(f, w.data(), 1, 64));
  clip.refit();
  const float most = clip.grid().largest(0), least = clip.grid().least(0);
  clip.above[0] = 0.5F;
  clip.refit();
  EXPECT_NEAR(clip.grid().largest(0), most / 2, 2);
  EXPECT_NEAR(clip.grid().least(0), least, 2);
  EXPECT_EQ(clip.grid().largest(1), most) << "the other group";
  // A loss that grows with each value: what lies beyond the range moves with its end.
  Neighbours near;
  clip.grid().find(w, &near);
  std::vector<float> rounded(64), gradient(64, 0);
  for (int i = 0; i < 64; ++i) rounded[i] = near.share[i] >= 0.5F ? near.up[i] : near.low[i];
  gradient[31] = 1;
  ClippedFit::Slopes slopes;
  clip.slopes(w, rounded, gradient, &slopes);
  EXPECT_EQ(slopes.above[0], clip.grid().largest(0));
  EXPECT_EQ(slopes.below[0], 0);
  EXPECT_EQ(slopes.above[1], 0);
}

}  // namespace
}  // namespace lumen::model::compress
