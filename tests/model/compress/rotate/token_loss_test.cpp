// needs: cpu. The loss under rounded weights is the rounded model's own; without rounding no rotation changes anything,
// which gradients know; with it rotations are learned that lose less, on other texts, too.
#include "model/compress/rotate/token_loss.h"

#include "tests/model/compress/rotate/rotate_case.h"

namespace lumen::model::compress {
namespace {

// Texts that the model has a law for: each token is drawn by its own predictions for the one before.
std::vector<text::TokenId> likely_text(int64_t count) {
  std::vector<text::TokenId> out;
  uint32_t state = 5;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    out.push_back((state >> 28) < 12 && i > 0 ? (out.back() * 5 + 7) % 24 : (state >> 19) % 24);
  }
  return out;
}

TEST(TokenLoss, IsTheRoundedModels) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  const std::map<std::string, FormatRef> formats = rotate_formats(m, "int3_g32");
  const std::vector<text::TokenId> text = rotate_text(16 * 8);
  TokenLossOptions o;
  o.run = {.length = 8, .batch = 16};
  TokenLoss loss(rotate_engine(), w, formats, text, o);
  const double got = loss.value();
  // The same model, turned and rounded whole.
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, weight] : m.weights) {
    values[name] = w.values(name);
    if (const auto f = formats.find(name); f != formats.end()) {
      const auto blob = rotate_engine().encode(f->second, values[name].data(), weight.rows(), weight.columns());
      values[name] = rotate_engine().decode(f->second, blob.data(), weight.rows(), weight.columns());
    }
  }
  calibrate::LayerRun run(rotate_engine(), m, text, o.run);
  calibrate::CarriedValues carried({}, "carried");
  double sum = 0;
  for (size_t k = 0; k < run.parts(); ++k) {
    const bool last = k + 1 == run.parts();
    const calibrate::PartRun part = run.run(
        k, [&](const std::string& name) { return std::span<const float>(values.at(name)); }, &carried,
        last ? nullptr : &carried);
    if (!last) continue;
    const std::vector<float>& losses = part.results.begin()->second;
    for (size_t i = 0; i < losses.size(); ++i)
      if (i % 8 != 7) sum += losses[i];
  }
  EXPECT_NEAR(got, sum / (16 * 7), 1e-6);
}

TEST(TokenLoss, WithoutRoundingNoRotationMatters) {
  const arch::Model m = rotate_model();
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  const std::map<std::string, FormatRef> none, some = rotate_formats(m, "int3_g32");
  TokenLossOptions o;
  o.run = {.length = 8, .batch = 16};
  for (const std::map<std::string, FormatRef>* formats : {&none, &some}) {
    w.clear_gradients();
    TokenLoss loss(rotate_engine(), w, *formats, rotate_text(16 * 8), o);
    (void)loss.add_gradients();
    for (size_t s = 0; s < w.spaces().size(); ++s) {
      // What is left along the group: R^T G less its transpose.
      const int64_t n = w.spaces()[s].width;
      const std::vector<double> inside = multiply_square(transposed_square(w.rotation(s), n), w.gradients()[s], n);
      double along = 0, whole = 0;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) {
          along += std::pow(inside[i * n + j] - inside[j * n + i], 2);
          whole += std::pow(inside[i * n + j], 2);
        }
      EXPECT_GT(whole, 0);
      if (formats->empty())
        EXPECT_LT(std::sqrt(along / whole), 1e-4) << s;
      else
        EXPECT_GT(std::sqrt(along / whole), 1e-2) << s;
    }
  }
}

TEST(TokenLoss, FallsByLearning) {
  const arch::Model m = rotate_model();
  const std::map<std::string, FormatRef> formats = rotate_formats(m, "int3_g32");
  RotatedWeights w(rotate_engine(), m, rotate_sites(m));
  begin_rotations(w);
  TokenLossOptions o;
  o.run = {.length = 8, .batch = 64};
  o.step_windows = 64;
  TokenLoss loss(rotate_engine(), w, formats, likely_text(128 * 8), o);
  const LearnedRotations got = learn_rotations(w, loss, {.steps = 20, .rate = 0.3});
  EXPECT_LT(got.after, got.before);
  EXPECT_NEAR(loss.value(), got.after, 1e-12) << "the best is what is set";
}

}  // namespace
}  // namespace lumen::model::compress
