// needs: none. Generation on the real engine agrees with the oracle, in f32 and from weights held in a format.
#include "model/infer/session/session.h"

#include <cmath>

#include "base/error.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "model/compress/quantize.h"
#include "model/infer/measure/perplexity.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

// Logits of the last position by the oracle.
std::vector<double> oracle_logits(const arch::Model& m, const std::vector<text::TokenId>& tokens) {
  std::map<std::string, graph::Tensor> inputs;
  for (const auto& [name, w] : m.weights) inputs[name] = f32_tensor(w);
  inputs["tokens"] = integers({1, static_cast<int64_t>(tokens.size())}, {tokens.begin(), tokens.end()});
  graph::EvalOptions o;
  o.wide = true;
  o.symbols = {{"B", 1}, {"T", static_cast<int64_t>(tokens.size())}};
  const auto logits = graph::eval(function_of(m, "forward"), inputs, o)[0].values;
  return {logits.end() - m.integer("vocab"), logits.end()};
}

double difference(std::span<const float> a, const std::vector<double>& b) {
  double d = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    d = std::max(d, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return d / size;
}

const std::vector<text::TokenId> kText = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};

TEST(Session, AgreesWithTheOracleHoweverTheTextIsCut) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  for (const int64_t chunk : {1, 4, 16, 32}) {
    Session s(loaded, {.context = 32, .chunk = chunk});
    (void)s.feed(std::span(kText).first(6));
    (void)s.feed(std::span(kText).subspan(6, 1));
    EXPECT_LT(difference(s.feed(std::span(kText).subspan(7)), oracle_logits(m, kText)), 1e-4) << chunk;
    EXPECT_EQ(s.position(), 11);
  }
}

// What reads a whole text at once rounds keys and values as a cache does that they go into.
TEST(Session, CachesUnderScalesAgreeWithTheWholeText) {
  const arch::Model floats = tiny_model();
  arch::Model m = floats;
  const FormatRef format = m.family->library().formats().get("int8");
  for (const auto& [keys, values] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
    m.metadata = floats.metadata;
    if (keys) set_encoded_state(m, arch::kCacheKeys, format, {0.5, 0.25});
    if (values) set_encoded_state(m, arch::kCacheValues, format, {0.375, 0.75});
    const std::vector<double> whole = oracle_logits(m, kText), plain = oracle_logits(floats, kText);
    const LoadedModel loaded(engine(), m);
    Session s(loaded, {.context = 32, .chunk = 4});
    EXPECT_GT(difference(std::vector<float>(plain.begin(), plain.end()), whole), 1e-2);
    EXPECT_LT(difference(s.feed(kText), whole), 1e-4) << keys << values;
  }
  set_encoded_state(m, arch::kCacheValues, format, {0.375});
  EXPECT_THROW((void)function_of(m, "forward"), Error) << "a scale for each layer";
}

TEST(Session, RewindForgets) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  Session s(loaded, {.context = 16, .chunk = 4});
  (void)s.feed(kText);
  s.rewind(4);
  const std::vector<text::TokenId> other = {7, 8};
  std::vector<text::TokenId> whole(kText.begin(), kText.begin() + 4);
  whole.insert(whole.end(), other.begin(), other.end());
  EXPECT_LT(difference(s.feed(other), oracle_logits(m, whole)), 1e-4);
}

TEST(Session, AFullContextIsAnError) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  Session s(loaded, {.context = 10, .chunk = 4});
  EXPECT_THROW((void)s.feed(kText), Error);
  (void)s.feed(std::span(kText).first(10));
  EXPECT_THROW((void)s.feed(std::span(kText).first(1)), Error);
}

TEST(Session, WeightsInAFormat) {
  const arch::FamilyRef family = test_library()->family("llama");
  const arch::Model m = initialise(family, family->config("tiny", {}), 5);
  compress::QuantizeOptions o;
  o.target = "q4_0";
  const arch::Model q = quantize(engine(), m, o, nullptr);
  const arch::Model expanded = compress::dequantize(engine(), q);
  const LoadedModel loaded(engine(), q);
  Session exact(loaded, {.context = 16, .chunk = 4, .exact = true});
  const auto expected = oracle_logits(expanded, kText);
  EXPECT_LT(difference(exact.feed(kText), expected), 1e-3);
  // Activations rounded to 8 bits on the way: near, not equal.
  Session fast(loaded, {.context = 16, .chunk = 4});
  EXPECT_LT(difference(fast.feed(kText), expected), 0.1);
}

// A cache in half precision is near the one in f32, one of eight bits farther; both are what the text says they are.
TEST(Session, CachesInAFormat) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  const auto expected = oracle_logits(m, kText);
  const FormatLibrary& formats = m.family->library().formats();
  for (const auto& [name, error] : {std::pair{"f16", 5e-3}, {"bf16", 5e-2}}) {
    SessionOptions options{.context = 16, .chunk = 4};
    options.keys = options.values = formats.get(name);
    Session s(loaded, options);
    const double off = difference(s.feed(kText), expected);
    EXPECT_LT(off, error) << name;
    EXPECT_GT(off, 1e-6) << name;  // it was rounded
  }
}

TEST(Perplexity, ProtocolsByHand) {
  const arch::Model m = tiny_model();
  const LoadedModel loaded(engine(), m);
  std::vector<text::TokenId> text;
  for (int i = 0; i < 37; ++i) text.push_back((i * i + 3) % 11);
  for (const bool full : {false, true}) {
    double sum = 0;
    int64_t count = 0;
    for (int64_t w = 0; w < 4; ++w) {
      for (int64_t t = full ? 0 : 4; t + 1 < 8; ++t) {
        const auto logits = oracle_logits(m, {text.begin() + w * 8, text.begin() + w * 8 + t + 1});
        double all = 0;
        for (double x : logits) all += std::exp(x);
        sum += std::log(all) - logits[static_cast<size_t>(text[static_cast<size_t>(w * 8 + t + 1)])];
        ++count;
      }
    }
    PerplexityOptions o;
    o.length = 8;
    o.full = full;
    o.batch = 3;  // the last batch is not full
    const Perplexity p = perplexity(loaded, text, o);
    EXPECT_EQ(p.tokens, count);
    EXPECT_NEAR(p.nats, sum / static_cast<double>(count), 1e-4);
    EXPECT_GT(p.error, 0);
  }
}

}  // namespace
}  // namespace lumen::model::infer
