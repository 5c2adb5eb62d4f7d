// needs: cpu. Rounding that is learned beats rounding to nearest, on the windows it learned from and on others, in
// formats of different kinds; the same bits at any thread count.
#include "model/compress/reconstruction/learn.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/model/compress/reconstruction/reconstruction_case.h"

namespace lumen::model::compress {
namespace {

using Learn = LearnedBlock (*)(run::Engine&, BlockObjective&, std::span<const LearnedWeight>, const LearnOptions&,
                               const LearnProgress&);

struct Errors {
  double before = 0, after = 0;              // learned from
  double other_before = 0, other_after = 0;  // not seen
};
Errors learned(Learn learn, const std::string& format, const LearnOptions& options, int64_t windows = 32) {
  run::Engine& e = reconstruction_engine();
  const arch::Model m = reconstruction_model();
  const FormatRef f = reconstruction_format(format);
  FirstLayer layer(e, m, reconstruction_text(windows * 8, 1)), other(e, m, reconstruction_text(8 * 8, 2));
  BlockObjective o = layer.objective(e);
  const LearnedBlock block = learn(e, o, layer.weights(f), options, {});
  std::vector<std::vector<uint8_t>> plain;
  for (const LearnedWeight& w : layer.weights(f)) plain.push_back(e.encode(f, w.values.data(), w.rows, w.columns));
  EXPECT_NEAR(layer.loss(e, f, plain), block.before, 1e-6 * block.before);
  EXPECT_NEAR(layer.loss(e, f, block.blobs), block.after, 1e-6 * block.after) << "what is stored is what was learned";
  return {block.before, block.after, other.loss(e, f, plain), other.loss(e, f, block.blobs)};
}

// `part`, `other`: of what rounding to nearest loses, on the windows that were learned from and on others.
void expect_better(const Errors& got, double part, double other) {
  EXPECT_LT(got.after, part * got.before);
  EXPECT_LT(got.other_after, other * got.other_before);
}

TEST(Learn, SignsBeatRoundingToNearest) {
  for (const char* format : {"q4_0", "q2_k", "nvfp4", "int3_g64"}) {
    SCOPED_TRACE(format);
    expect_better(learned(learn_by_signs, format, {.steps = 24}), 0.6, 0.85);
  }
}

// On as few windows as these it need not hold for others.
TEST(Learn, SoftRoundingBeatsRoundingToNearest) {
  for (const char* format : {"q4_0", "q3_k", "nvfp4", "int3_g64"}) {
    const Errors got = learned(learn_soft_rounding, format, {.steps = 40, .rate = 0.2});
    EXPECT_LT(got.after, 0.98 * got.before) << format;
  }
}

TEST(Learn, ClippingBeatsRoundingToNearest) {
  for (const char* format : {"int2_g64_asym", "int3_g64"}) {
    SCOPED_TRACE(format);
    expect_better(learned(learn_clipping, format, {.steps = 20}, 64), 0.98, 0.98);
  }
}

TEST(Learn, ValuesBeatRoundingToNearest) {
  for (const char* format : {"q2_k", "int3_g64"}) {
    SCOPED_TRACE(format);
    expect_better(learned(learn_values, format, {.steps = 40}, 64), 0.6, 0.8);
  }
  const Errors got = learned(learn_values, "q4_0", {.steps = 40}, 64);
  EXPECT_LT(got.after, 0.9 * got.before) << "few windows for as many bits: others do not gain";
}

TEST(Learn, FormatsWithoutCodesOfElementsHaveTheirValuesTrained) {
  const Errors got = learned(learn_values, "iq2_xs", {.steps = 4}, 64);
  EXPECT_LT(got.after, got.before);
}

TEST(Learn, SameBitsAtAnyThreadCount) {
  const arch::Model m = reconstruction_model();
  const FormatRef f = reconstruction_format("q4_0");
  for (const Learn learn : {learn_by_signs, learn_soft_rounding, learn_clipping, learn_values}) {
    std::vector<LearnedBlock> got;
    for (const int threads : {1, 2}) {
      run::Engine& e = reconstruction_engine(threads);
      FirstLayer layer(e, m, reconstruction_text(12 * 8, 1));
      BlockObjective o = layer.objective(e);
      got.push_back(learn(e, o, layer.weights(f), {.steps = 3, .windows = 5}, {}));
    }
    EXPECT_EQ(got[0].after, got[1].after);
    EXPECT_EQ(got[0].blobs, got[1].blobs);
  }
}

TEST(Learn, FormatsThatCannotBeMoved) {
  run::Engine& e = reconstruction_engine();
  const arch::Model m = reconstruction_model();
  FirstLayer layer(e, m, reconstruction_text(4 * 8, 1));
  BlockObjective o = layer.objective(e);
  EXPECT_THROW(learn_by_signs(e, o, layer.weights(reconstruction_format("iq2_xs")), {.steps = 1}), Error);
}

}  // namespace
}  // namespace lumen::model::compress
