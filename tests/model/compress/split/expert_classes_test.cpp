// needs: cpu. How much experts matter on texts: shares of what they add to outputs.
#include "model/compress/split/expert_classes.h"

#include <numeric>

#include "base/error.h"
#include "tests/model/compress/equivalent_transform/transform_case.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

std::vector<text::TokenId> tokens_of(const arch::Model& m, int64_t count, int64_t step) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * step * i + i + 5) % m.integer("vocab"));
  return out;
}

calibrate::LayerRunOptions windows() {
  calibrate::LayerRunOptions o;
  o.length = 8;
  o.batch = 2;
  return o;
}

TEST(ExpertClasses, SharesOfTexts) {
  const arch::Model m = uneven_model("mixtral");
  std::vector<ExpertLayer> layers = expert_layers(m);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[1].layer, 1);
  EXPECT_EQ(layers[1].experts, 5);
  EXPECT_EQ(layers[1].weights.size(), 3U);
  run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  add_expert_shares(e, m, tokens_of(m, 32, 3), windows(), {}, layers);
  add_expert_shares(e, m, tokens_of(m, 40, 7), windows(), {}, layers);
  for (const ExpertLayer& layer : layers) {
    ASSERT_EQ(layer.shares.size(), 2U);
    for (const std::vector<double>& shares : layer.shares)
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
    EXPECT_EQ(std::accumulate(layer.rows.begin(), layer.rows.end(), int64_t{0}), 2 * (32 + 40));
    EXPECT_NE(layer.shares[0], layer.shares[1]);
  }
  choose_expert_classes(layers, std::vector<double>{8.5, 4.5, 2.5}, 5.0);
  for (const ExpertLayer& layer : layers) {
    EXPECT_LE(layer.classes.average, 5.0);
    EXPECT_EQ(layer.classes.margins.size(), 5U);
    for (int64_t x = 0; x < layer.experts; ++x) {
      EXPECT_NEAR(layer.significance.mean[x], (layer.shares[0][x] + layer.shares[1][x]) / 2, 1e-12);
      for (int64_t y = 0; y < layer.experts; ++y)
        if (layer.significance.mean[x] > layer.significance.mean[y]) {
          EXPECT_GE(layer.classes.bits[x], layer.classes.bits[y]);
        }
    }
  }
}

// What an expert's weights are multiplied with counts: twice the matrices, four times the energy.
TEST(ExpertClasses, GrowWithTheWeights) {
  arch::Model m = uneven_model("mixtral");
  std::vector<ExpertLayer> before = expert_layers(m), after = before;
  run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  const std::vector<text::TokenId> text = tokens_of(m, 32, 3);
  add_expert_shares(e, m, text, windows(), {}, before);
  // Of the last layer, so that no router behind it reads anything else.
  ExpertLayer& last = before.back();
  const std::string& down = last.weights.back();
  const arch::Weight w = m.weights.at(down);
  std::vector<float> values(w.f32().begin(), w.f32().end());
  const int64_t each = std::ssize(values) / last.experts;
  for (int64_t i = 0; i < each; ++i) values[2 * each + i] *= 2;
  m.weights.at(down) = arch::f32_weight(w.type.shape, values);
  add_expert_shares(e, m, text, windows(), {}, after);
  // The two other weights of three keep their shares s; of the last one t becomes 4 t / (1 + 3 t).
  const double was = last.shares[0][2], is = after.back().shares[0][2];
  EXPECT_GT(is, was);
  EXPECT_LE(is - was, 1.0 / 9 + 1e-9);  // the most that 4 t / (1 + 3 t) - t can be, of a third
}

TEST(ExpertClasses, ModelsWithoutExperts) {
  EXPECT_TRUE(expert_layers(tiny_model()).empty());
}

}  // namespace
}  // namespace lumen::model::compress
