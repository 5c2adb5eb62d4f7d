// needs: cpu. A small model over a text: what its products read, however many windows run at once; and rounding by it.
#include "model/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::calibrate {
namespace {

run::Engine& calibrate_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model small_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  return initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      1);
}

std::vector<text::TokenId> text(int64_t count) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * i * 7 + i * 3 + 5) % 40);
  return out;
}

Importance measured(const arch::Model& m, int64_t batch, int64_t windows = 0, bool output = false) {
  const infer::LoadedModel loaded(calibrate_engine(), m);
  CalibrateOptions o;
  o.length = 8;
  o.batch = batch;
  o.windows = windows;
  o.output = output;
  o.exact = true;
  return calibrate(loaded, text(8 * 5 + 3), o);
}

TEST(Calibrate, EveryMatrixOfEveryLayer) {
  const arch::Model m = small_model();
  const Importance got = measured(m, 1);
  EXPECT_EQ(got.entries.size(), 14u);  // seven of each layer
  EXPECT_EQ(got.windows, 5);
  const ImportanceEntry& q = got.entries.at("blk.0.attn_q.weight");
  EXPECT_EQ(q.columns, 64);
  EXPECT_EQ(q.counts, std::vector<double>{40});
  EXPECT_EQ(q.sums, got.entries.at("blk.0.attn_k.weight").sums);  // they read the same
  EXPECT_NE(q.sums, got.entries.at("blk.1.attn_q.weight").sums);
  // What is normed has a mean square near one.
  double all = 0;
  for (const double x : q.sums) all += x;
  EXPECT_NEAR(all / 64 / 40, 1, 0.05);
  EXPECT_EQ(got.entries.at("blk.1.ffn_down.weight").columns, 96);
  EXPECT_TRUE(measured(m, 1, 1, true).entries.contains("output.weight"));
}

TEST(Calibrate, WindowsAtOnceGiveTheSame) {
  const arch::Model m = small_model();
  const Importance one = measured(m, 1), two = measured(m, 2);
  for (const auto& [name, e] : one.entries)
    for (size_t i = 0; i < e.sums.size(); ++i)
      EXPECT_NEAR(two.entries.at(name).sums[i], e.sums[i], 1e-5 * std::max(1.0, e.sums[i])) << name;
  const Importance again = measured(m, 1);
  for (const auto& [name, e] : one.entries) EXPECT_EQ(again.entries.at(name).sums, e.sums) << name;
  EXPECT_THROW((void)measured(m, 0), Error);
}

// Errors go to columns that count little.
TEST(Calibrate, RoundingByImportance) {
  const arch::Model m = small_model();
  auto importance = std::make_shared<Importance>(measured(m, 1));
  for (auto& [name, e] : importance->entries)
    for (int64_t c = 0; c < e.columns; c += 7) e.sums[c] *= 400;
  compress::QuantizeOptions o;
  o.target = "q4_0";
  o.pure = true;
  compress::QuantizeReport plain, weighed;
  (void)quantize(calibrate_engine(), m, o, &plain);
  o.importance = importance;
  const arch::Model out = quantize(calibrate_engine(), m, o, &weighed);
  int64_t better = 0, all = 0;
  const auto by_importance = [&](const arch::Model& rounded, const arch::Parameter& p) {
    const std::vector<float> x = compress::values_of(calibrate_engine(), m.weights.at(p.name)),
                             y = compress::values_of(calibrate_engine(), rounded.weights.at(p.name));
    const std::vector<float> w = importance->entries.at(p.gguf).means(0);
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += w[i % w.size()] * std::pow(double(x[i]) - y[i], 2);
    return sum;
  };
  o.importance = nullptr;
  const arch::Model flat = quantize(calibrate_engine(), m, o, nullptr);
  for (const compress::QuantizedTensor& t : weighed.tensors) {
    if (!t.weighed) continue;
    ++all;
    for (const arch::Parameter& p : m.parameters)
      if (p.gguf == t.name) better += by_importance(out, p) < 0.8 * by_importance(flat, p);
  }
  EXPECT_EQ(all, 14);
  EXPECT_EQ(better, all);
  EXPECT_EQ(weighed.without_importance, (std::vector<std::string>{"token_embd.weight", "output.weight"}));
  EXPECT_EQ(weighed.warnings().size(), 1u);
  // Of another model.
  importance->entries.at("blk.0.attn_q.weight").columns = 32;
  o.importance = importance;
  EXPECT_THROW((void)quantize(calibrate_engine(), m, o, nullptr), Error);
}

}  // namespace
}  // namespace lumen::model::calibrate
