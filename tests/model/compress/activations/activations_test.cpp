// Needs: cpu. What projections read of a text, spikes of single tokens, and what comes of scales that cannot hold them.
#include "model/compress/activations/activations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "model/compress/activations/kept_by_loss.h"
#include "model/compress/quantize.h"
#include "model/infer/session/session.h"
#include "tests/model/tiny.h"

namespace lumen::model::compress {
namespace {

constexpr int kLength = 8;

arch::Model wide_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 3}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      1);
  for (auto& [name, w] : m.weights) {
    if (m.find(name)->init == "ones") continue;
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v *= 5;
    w = arch::f32_weight(w.type.shape, values);
  }
  return m;
}

// Every window begins with token 1, as with a BOS.
std::vector<text::TokenId> some_text(int64_t windows) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < windows * kLength; ++i)
    out.push_back(i % kLength == 0 ? 1 : 2 + (i * i * 7 + i * 3 + 5) % 38);
  return out;
}

void set_values(arch::Model& m, const std::string& name,
                const std::function<float(int64_t row, int64_t column, float)>& f) {
  arch::Weight& w = m.weights.at(name);
  std::vector<float> values(w.f32().begin(), w.f32().end());
  for (int64_t i = 0; i < std::ssize(values); ++i) values[i] = f(i / w.columns(), i % w.columns(), values[i]);
  w = arch::f32_weight(w.type.shape, values);
}

// The token of the first place makes one channel of a layer's inner activation very large. The next matrix has zeros
// for the channel, so that the model computes what it would without: the spikes that large models learn by themselves.
void give_spike(arch::Model& m, int layer, float size) {
  const std::string at = fmt::format("layers.{}.", layer);
  const std::span<const float> embedding = m.weights.at("embed").f32();
  const std::vector<float> token(embedding.begin() + 64, embedding.begin() + 128);
  double length = 0;
  for (const float v : token) length += static_cast<double>(v) * v;
  for (const char* name : {"gate", "up"})
    set_values(m, at + name, [&](int64_t row, int64_t column, float v) {
      return row == 5 ? size * token[column] / static_cast<float>(std::sqrt(length)) : v;
    });
}
void close_channel(arch::Model& m, int layer) {
  set_values(m, fmt::format("layers.{}.down", layer),
             [](int64_t, int64_t column, float v) { return column == 5 ? 0 : v; });
}

std::vector<double> logits_of(const arch::Model& m, const std::vector<text::TokenId>& text) {
  std::map<std::string, graph::Tensor> in;
  const arch::Model plain = dequantize(engine(), m);
  for (const auto& [name, w] : plain.weights) in[name] = f32_tensor(w);
  const int64_t windows = std::ssize(text) / kLength;
  in["tokens"] = integers({windows, kLength}, {text.begin(), text.end()});
  return graph::eval(function_of(plain, "forward"), in)[0].values;
}

double off(const std::vector<double>& got, const std::vector<double>& want) {
  double wrong = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    wrong += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(wrong / size);
}

std::vector<ActivationRange> ranges_of(const arch::Model& m, const std::vector<text::TokenId>& text) {
  return activation_ranges(engine(), m, {}, text, {.length = kLength, .batch = 2}, "");
}

TEST(Activations, RangesAreThoseOfTheText) {
  const arch::Model m = wide_model();
  const std::vector<text::TokenId> text = some_text(5);
  const auto ranges = ranges_of(m, text);
  ASSERT_EQ(ranges.size(), 12u);  // of each layer: q k v, o, gate and up, down
  EXPECT_EQ(ranges[0].weights, (std::vector<std::string>{"layers.0.wq", "layers.0.wk", "layers.0.wv"}));
  EXPECT_EQ(ranges[3].weights, std::vector<std::string>{"layers.0.down"});
  for (const ActivationRange& r : ranges) {
    EXPECT_GT(r.largest, 0);
    EXPECT_GE(r.ratio, 1);
    EXPECT_LT(r.ratio, 10);
  }
  // The first layer's: rows of the embedding, normed.
  const std::span<const float> embedding = m.weights.at("embed").f32();
  double largest = 0;
  for (const text::TokenId id : text) {
    const auto row = embedding.subspan(id * 64, 64);
    double squares = 0, most = 0;
    for (const float v : row) {
      squares += static_cast<double>(v) * v;
      most = std::max(most, std::abs(static_cast<double>(v)));
    }
    largest = std::max(largest, most / std::sqrt(squares / 64));
  }
  EXPECT_NEAR(ranges[0].largest, largest, 1e-3 * largest);
}

TEST(Activations, ScalesAreThoseOfTheFormatsOwnFit) {
  const FormatLibrary& formats = test_library()->formats();
  EXPECT_FLOAT_EQ(static_scale(*formats.get("int8"), 254), 2);
  EXPECT_FLOAT_EQ(static_scale(*formats.get("fp8_tensor"), 896), 2);
  EXPECT_GT(static_scale(*formats.get("int8"), 0), 0);
  EXPECT_THROW((void)static_scale(*formats.get("int8_row"), 1), Error);
}

TEST(Activations, KeptProjections) {
  const std::vector<ActivationRange> ranges = {{{"a", "b"}, 1, 2}, {{"c"}, 9, 400}, {{"d"}, 1, 3}, {{"e"}, 1, 21}};
  EXPECT_EQ(kept_projections(ranges, {}), (std::set<std::string>{"c", "e"}));
  EXPECT_EQ(kept_projections(ranges, {.ratio = 30, .random_seed = {}}), std::set<std::string>{"c"});
  std::set<std::set<std::string>> drawn;
  for (uint32_t seed = 0; seed < 16; ++seed) {
    const auto kept = kept_projections(ranges, {.ratio = 20, .random_seed = seed});
    EXPECT_EQ(kept.size(), 2u);
    EXPECT_FALSE(kept.contains("c") || kept.contains("e"));
    EXPECT_EQ(kept, kept_projections(ranges, {.ratio = 20, .random_seed = seed}));
    drawn.insert(kept);
  }
  EXPECT_GT(drawn.size(), 1u);
}

struct Held {
  double off = 0;
  std::set<std::string> kept;
};
Held held(const arch::Model& m, const std::vector<text::TokenId>& text, const std::vector<double>& want,
          const ActivationFormats& formats) {
  QuantizeOptions o;
  o.target = "int8_row";
  const FormatLibrary& library = test_library()->formats();
  for (const std::string& name : formats.kept) o.tensor_types.emplace_back("^" + name + "$", formats.kept_format->name);
  arch::Model q = quantize(engine(), m, o, nullptr);
  set_encoded_inputs(q, encodings_of(ranges_of(q, text), formats));
  EXPECT_TRUE(library.find("int8_row"));
  return {off(logits_of(q, text), want), formats.kept};
}

// One scale for all tokens loses those without spikes; what has spikes kept in eight bits of floats is good again, as
// many others kept are of no use.
TEST(Activations, SpikesAreFoundAndKept) {
  const std::vector<text::TokenId> text = some_text(6);
  arch::Model base = wide_model();
  for (const int layer : {0, 1}) close_channel(base, layer);
  arch::Model m = base;
  for (const int layer : {0, 1}) give_spike(m, layer, 40);
  const std::vector<double> want = logits_of(base, text);
  EXPECT_LT(off(logits_of(m, text), want), 1e-4) << "the model computes something else";
  const auto ranges = ranges_of(m, text);
  const std::set<std::string> spiky = kept_projections(ranges, {});
  EXPECT_TRUE(spiky.contains("layers.0.down"));
  EXPECT_TRUE(spiky.contains("layers.1.down"));
  EXPECT_EQ(spiky.size(), 2u);
  const FormatLibrary& formats = test_library()->formats();
  ActivationFormats f{formats.get("int8"), formats.get("fp8_tensor"), true, {}, false};
  const double naive = held(m, text, want, f).off;
  const double without = held(base, text, want, f).off;
  f.kept = spiky;
  const double kept = held(m, text, want, f).off;
  ActivationFormats by_token{formats.get("int8_row"), nullptr, false, {}, false};
  const double dynamic = held(m, text, want, by_token).off;
  EXPECT_GT(naive, 4 * without);
  EXPECT_LT(kept, 2 * without);
  EXPECT_LT(dynamic, naive) << "tokens without spikes have scales of their own";
  std::map<std::string, FormatRef> weights;
  for (const arch::Parameter& p : m.parameters)
    if (graph::layer_of(p.name) >= 0 && !stays_f32(p) && !p.is_vector()) weights[p.name] = formats.get("int8_row");
  calibrate::LayerRunOptions o;
  o.length = kLength;
  f.kept = spiky;
  f.kept.insert("layers.2.wq");
  KeptByLoss by_loss = kept_by_loss(engine(), m, text, o, ranges, weights, f, 0.01);
  EXPECT_EQ(by_loss.kept, spiky) << "what has no spikes gains nothing";
  EXPECT_LT(by_loss.after, 0.5 * by_loss.before);
  ASSERT_EQ(by_loss.alone.size(), 3u);
  EXPECT_EQ(by_loss.alone[2].first, "layers.2.wq");
  by_loss = kept_by_loss(engine(), m, text, o, ranges, weights, f, 1e6);
  EXPECT_TRUE(by_loss.kept.empty());
  EXPECT_EQ(by_loss.after, by_loss.before);
  for (const uint32_t seed : {1u, 2u, 3u}) {
    f.kept = kept_projections(ranges, {.ratio = 20, .random_seed = seed});
    EXPECT_GT(held(m, text, want, f).off, 0.8 * naive) << "others were kept: " << seed;
  }
}

// Experts that rows pick, latents, biases, joined weights: what runs is what the graph says.
class HeldOfFamilies : public testing::TestWithParam<const char*> {};

TEST_P(HeldOfFamilies, KernelsEqualTheEvaluator) {
  arch::Model m = dequantize(engine(), read_model(test_library(), std::string(LUMEN_SOURCE_DIR) +
                                                                      "/tests/model/fixtures/families/" + GetParam()));
  std::vector<text::TokenId> text;
  for (int i = 0; i < 2 * kLength; ++i) text.push_back((i * 7 + 3) % m.integer("vocab"));
  const auto ranges = ranges_of(m, text);
  EXPECT_GE(ranges.size(), 4u);
  text.resize(kLength);
  const auto before = logits_of(m, text);
  set_encoded_inputs(m, encodings_of(ranges, {test_library()->formats().get("int8_row"), nullptr, false, {}, false}));
  const auto all = logits_of(m, text);
  const std::vector<double> want(all.end() - m.integer("vocab"), all.end());
  const infer::LoadedModel loaded(engine(), m);
  infer::Session session(loaded, {.context = 16, .chunk = kLength});
  const auto logits = session.feed(text);
  EXPECT_LT(off({logits.begin(), logits.end()}, want), 2e-3);
  EXPECT_GT(off(all, before), 1e-4) << "nothing was encoded";
}
INSTANTIATE_TEST_SUITE_P(Families, HeldOfFamilies,
                         testing::Values("mixtral", "deepseek_v3", "gpt_oss", "gpt2", "phi3"));

// Numbers of one size but for a few: what stands out is clipped where that costs less than the steps it would take.
TEST(Activations, ReachesAsFarAsErrorsAreLeast) {
  const Format& int8 = *test_library()->formats().get("int8");
  ActivationRange range;
  range.spread.assign(graph::kSpreadEdges, 0);
  const auto add = [&](double size, double count) {
    for (int64_t k = 0; k < graph::kSpreadEdges; ++k)
      if (size >= graph::spread_edge(k)) range.spread[k] += count;
  };
  for (int i = 1; i <= 100; ++i) add(i / 100.0, 1e6);
  range.largest = 1;
  EXPECT_EQ(best_reach(int8, range), 1) << "nothing stands out";
  add(30, 2);
  range.largest = 30;
  const double reach = best_reach(int8, range);
  EXPECT_LT(reach, 3);
  EXPECT_GE(reach, 0.9);
  add(30, 1e5);
  EXPECT_EQ(best_reach(int8, range), 30) << "as many are no outliers";
  ActivationFormats formats;
  formats.format = test_library()->formats().get("int8");
  formats.has_static_scales = formats.clips = true;
  range.weights = {"w"};
  EXPECT_EQ(encodings_of(std::vector{range}, formats)[0].scale, static_scale(int8, 30));
  range.largest = 0;
  EXPECT_EQ(best_reach(int8, range), 0);
}

}  // namespace
}  // namespace lumen::model::compress
