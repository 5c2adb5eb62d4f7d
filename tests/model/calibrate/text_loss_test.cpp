// needs: cpu. What a text costs a model, by its own tokens and by a teacher, and gradients of that against differences.
#include "model/calibrate/text_loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::calibrate {
namespace {

run::Engine& loss_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model loss_model(uint32_t seed) {
  const arch::FamilyRef f = test_library()->family("llama");
  arch::Model m = initialise(
      f,
      f->config(
          "",
          {{"vocab", 24}, {"hidden", 16}, {"layers", 2}, {"heads", 2}, {"kv_heads", 2}, {"ffn", 32}, {"context", 16}}),
      seed);
  for (auto& [name, w] : m.weights) {
    std::vector<float> x(w.f32().begin(), w.f32().end());
    for (float& v : x) v *= w.type.shape.size() > 1 ? 6 : 1;
    w = arch::f32_weight(w.type.shape, x);
  }
  return m;
}

std::vector<text::TokenId> loss_text(int64_t count) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * i * 7 + i * 3 + 5) % 24);
  return out;
}

std::vector<float> loss_numbers(const arch::Model& m, const std::string& name) {
  return {m.weights.at(name).f32().begin(), m.weights.at(name).f32().end()};
}

TEST(TextLoss, NoDistanceFromItself) {
  const arch::Model m = loss_model(1), other = loss_model(2);
  const std::vector<text::TokenId> text = loss_text(11 * 8);
  TextLoss loss(loss_engine(), m, text, {.length = 8, .batch = 2}, {}, &m);
  EXPECT_EQ(loss.windows(), 11);
  EXPECT_NEAR(loss.value([&](const std::string& name) { return loss_numbers(m, name); }), 0, 1e-6);
  EXPECT_GT(loss.value([&](const std::string& name) { return loss_numbers(other, name); }), 0.01);
  double largest = 0;
  const std::vector<int64_t> some = {3, 1, 7};
  (void)loss.gradients(
      some, [&](const std::string& name) { return loss_numbers(m, name); },
      [&](const std::string&, const std::vector<float>& g) {
        for (const float x : g) largest = std::max(largest, std::abs(double{x}));
      });
  EXPECT_LT(largest, 1e-5);
}

TEST(TextLoss, GradientsAreDifferences) {
  const arch::Model m = loss_model(1), teacher = loss_model(2);
  const std::vector<text::TokenId> text = loss_text(4 * 8);
  const std::vector<int64_t> all = {0, 1, 2, 3};
  for (const arch::Model* by : {static_cast<const arch::Model*>(nullptr), &teacher}) {
    TextLoss loss(loss_engine(), m, text, {.length = 8, .batch = 3}, {}, by);
    std::map<std::string, std::vector<float>> gradients;
    const double here = loss.gradients(
        all, [&](const std::string& name) { return loss_numbers(m, name); },
        [&](const std::string& name, const std::vector<float>& g) {
          std::vector<float>& to = gradients[name];
          to.resize(g.size());
          for (size_t i = 0; i < g.size(); ++i) to[i] += g[i];
        });
    EXPECT_NEAR(here, loss.value([&](const std::string& name) { return loss_numbers(m, name); }), 1e-6);
    for (const char* moved : {"embed", "layers.0.wv", "layers.1.w2", "layers.0.attn_norm", "norm"}) {
      if (!m.find(moved)) continue;
      ASSERT_TRUE(gradients.contains(moved)) << moved;
      // Along the gradient itself the loss rises by its square.
      double square = 0;
      for (const float g : gradients[moved]) square += double{g} * g;
      ASSERT_GT(square, 0) << moved;
      const double by_how_much = 1e-2 / std::sqrt(square);
      const auto at = [&](double sign) {
        return loss.value([&](const std::string& name) {
          std::vector<float> x = loss_numbers(m, name);
          for (size_t i = 0; name == moved && i < x.size(); ++i) x[i] += sign * by_how_much * gradients[moved][i];
          return x;
        });
      };
      EXPECT_NEAR((at(1) - at(-1)) / (2 * by_how_much), square, 0.02 * square) << moved << (by ? " taught" : "");
    }
  }
}

TEST(TextLoss, TeachersOfOtherTokensAreRefused) {
  const arch::Model m = loss_model(1);
  arch::Model other = m;
  other.config["vocab"] = 25;
  const std::vector<text::TokenId> text = loss_text(4 * 8);
  EXPECT_THROW(TextLoss(loss_engine(), m, text, {.length = 8}, {}, &other), Error);
}

}  // namespace
}  // namespace lumen::model::calibrate
