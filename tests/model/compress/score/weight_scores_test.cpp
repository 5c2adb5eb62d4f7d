// needs: cpu. Predicted losses of weights in formats against what the model really loses: the divergence of its
// predictions from its own, one weight rounded at a time.
#include "model/compress/score/weight_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/compress/quantize.h"
#include "model/compress/score/product_time.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& scoring_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model scored_model(const std::string& family) {
  const arch::FamilyRef f = test_library()->family(family);
  std::map<std::string, double> sizes{{"vocab", 24}, {"hidden", 64},  {"layers", 2},  {"heads", 2},
                                      {"ffn", 64},   {"kv_heads", 2}, {"context", 32}};
  if (family == "mixtral") sizes["experts"] = 4;
  arch::Model m = initialise(f, f->config("", {sizes.begin(), sizes.end()}), 5);
  // Larger weights: predictions that depend on what comes before.
  for (auto& [name, w] : m.weights) {
    if (m.find(name)->is_vector()) continue;
    std::vector<float> x(w.f32().begin(), w.f32().end());
    for (float& v : x) v *= 4;
    w = arch::f32_weight(w.type.shape, x);
  }
  return m;
}

std::vector<text::TokenId> scored_text(int64_t count) {
  std::vector<text::TokenId> out;
  uint32_t state = 11;
  for (int64_t i = 0; i < count; ++i) out.push_back(((state = state * 1664525 + 1013904223) >> 19) % 24);
  return out;
}

double loss_of(const arch::Model& m, const std::vector<text::TokenId>& text) {
  calibrate::LayerRun run(scoring_engine(), m, text, {.length = 16, .batch = 8});
  calibrate::CarriedValues values({}, "loss");
  double sum = 0;
  std::map<std::string, std::vector<float>> held;
  for (size_t k = 0; k < run.parts(); ++k) {
    const auto weight = [&](const std::string& name) -> std::span<const float> {
      return held[name] = values_of(scoring_engine(), m.weights.at(name));
    };
    const bool last = k + 1 == run.parts();
    const calibrate::PartRun part = run.run(k, weight, &values, last ? nullptr : &values);
    if (!last) continue;
    for (const auto& [name, losses] : part.results)
      for (size_t i = 0; i < losses.size(); ++i)
        if (i % 16 != 15) sum += losses[i];
  }
  return sum / (std::ssize(text) / 16 * 15);
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& x) {
    std::vector<size_t> order(x.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](size_t i) { return x[i]; });
    std::vector<double> out(x.size());
    for (size_t i = 0; i < order.size(); ++i) out[order[i]] = i;
    return out;
  };
  const std::vector<double> x = ranks(a), y = ranks(b);
  const double mean = (x.size() - 1) / 2.0;
  double xy = 0, xx = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
  }
  return xy / xx;
}

TEST(WeightScores, OrderOfWhatModelsLose) {
  for (const char* family : {"llama", "mixtral"}) {
    const arch::Model m = scored_model(family);
    const std::vector<text::TokenId> text = scored_text(160 * 16);
    const FormatLibrary& library = test_library()->formats();
    QuantizeOptions q;
    q.target = "bf16";
    q.pure = true;
    std::vector<std::string> names;
    for (const auto& [name, f] : choose_formats(m, q, nullptr))
      if (f->name == "bf16") names.push_back(name);
    ScoreOptions options;
    options.run = {.length = 16, .batch = 8};
    for (const char* name : {"int2_g32", "int3_g32", "int4_g32", "int8_row"})
      options.candidates.push_back(library.get(name));
    const std::vector<WeightScore> scores = score_weights(scoring_engine(), m, names, text, options);
    ASSERT_EQ(scores.size(), names.size());
    std::vector<double> predicted, measured;
    // The loss to second order: rounding one way and the other, so that the gradient's part goes.
    const double base = loss_of(m, text);
    for (const WeightScore& w : scores) {
      EXPECT_EQ(w.products > 0, w.name != "embed") << w.name;
      for (size_t c = 0; c + 1 < w.candidates.size(); ++c) {
        EXPECT_GT(w.candidates[c].score, w.candidates[c + 1].score) << w.name;
        EXPECT_LT(w.candidates[c].bytes, w.candidates[c + 1].bytes) << w.name;
      }
      const CandidateScore& two = w.candidates[0];
      arch::Model there = m, back = m;
      const std::vector<float> values = values_of(scoring_engine(), m.weights.at(w.name));
      const int64_t columns = m.weights.at(w.name).columns();
      const auto blob = scoring_engine().encode(two.format, values.data(), std::ssize(values) / columns, columns);
      const std::vector<float> rounded =
          scoring_engine().decode(two.format, blob.data(), std::ssize(values) / columns, columns);
      std::vector<float> other = values;
      for (size_t i = 0; i < other.size(); ++i) other[i] = 2 * values[i] - rounded[i];
      there.weights.at(w.name) = arch::f32_weight(m.weights.at(w.name).type.shape, rounded);
      back.weights.at(w.name) = arch::f32_weight(m.weights.at(w.name).type.shape, other);
      predicted.push_back(two.score);
      measured.push_back((loss_of(there, text) + loss_of(back, text)) / 2 - base);
    }
    // Routes that rounding changes are in no gradient.
    EXPECT_GT(rank_correlation(predicted, measured), std::string(family) == "llama" ? 0.6 : 0.4) << family;
    const double sum = std::accumulate(predicted.begin(), predicted.end(), 0.0),
                 all = std::accumulate(measured.begin(), measured.end(), 0.0);
    EXPECT_GT(sum, all / 4) << family;
    EXPECT_LT(sum, all * 4) << family;
  }
}

TEST(WeightScores, SameBitsInFilesAndMemory) {
  const arch::Model m = scored_model("llama");
  const std::vector<text::TokenId> text = scored_text(6 * 16);
  const TestFolder folder;
  std::vector<std::vector<WeightScore>> all;
  for (const std::filesystem::path& where : {std::filesystem::path(), folder.path()}) {
    ScoreOptions options;
    options.run = {.length = 16, .batch = 4};
    options.candidates = {test_library()->formats().get("q4_0")};
    options.folder = where;
    all.push_back(score_weights(scoring_engine(), m, {"layers.0.wq", "layers.1.down"}, text, options));
  }
  for (size_t k = 0; k < all[0].size(); ++k) EXPECT_EQ(all[0][k].candidates[0].score, all[1][k].candidates[0].score);
}

TEST(WeightScores, CandidatesThatFitNoWeight) {
  const arch::Model m = scored_model("llama");
  ScoreOptions options;
  options.run = {.length = 16, .batch = 4};
  options.candidates = {test_library()->formats().get("q4_k")};
  EXPECT_THROW(score_weights(scoring_engine(), m, {"layers.0.wq"}, scored_text(64), options), Error);
}

TEST(ProductTimes, AreMeasuredOnce) {
  ProductTimes times(scoring_engine());
  const FormatRef f = test_library()->formats().get("q8_0");
  const double first = times.ms(f, 64, 256);
  EXPECT_GT(first, 0);
  EXPECT_EQ(times.ms(f, 64, 256), first);
}

}  // namespace
}  // namespace lumen::model::compress
