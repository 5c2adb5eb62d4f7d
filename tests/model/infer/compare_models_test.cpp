// needs: none. Models side by side give what records of logits give, and perplexity, each to its own precision.
#include "model/infer/measure/compare_models.h"

#include <cmath>

#include "base/error.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

std::vector<text::TokenId> some_text() {
  std::vector<text::TokenId> text;
  for (int i = 0; i < 70; ++i) text.push_back((i * i + 3) % 11);
  return text;
}

TEST(CompareModels, AsRecordsAndPerplexitySay) {
  const arch::Model a = tiny_model(1), b = tiny_model(2), c = tiny_model(1);
  const LoadedModel base(engine(), a), other(engine(), b), same(engine(), c);
  const std::vector<text::TokenId> text = some_text();
  for (const bool full : {false, true}) {
    PerplexityOptions o;
    o.length = 8;
    o.exact = true;
    o.full = full;
    const std::vector<const LoadedModel*> others = {&other, &same};
    int64_t told = 0;
    const ComparedModels compared = compare_models(base, others, text, o, [&](int64_t done, int64_t all) {
      told = 100 * done + all;
      return true;
    });
    EXPECT_EQ(told, 808);
    ASSERT_EQ(compared.others.size(), 2U);
    // Itself.
    const Divergence& none = compared.others[1].divergence;
    EXPECT_EQ(none.mean, 0);
    EXPECT_EQ(none.most, 0);
    EXPECT_EQ(none.same_top, 1);
    EXPECT_EQ(none.ratio, 1);
    EXPECT_NEAR(*compared.others[1].cosine, 1, 1e-6);
    // The other.
    const TestFolder folder;
    record_logits(base, text, o, folder / "a.kl");
    const Divergence recorded = divergence(other, text, o, folder / "a.kl");
    const Divergence& d = compared.others[0].divergence;
    EXPECT_EQ(d.tokens, recorded.tokens);
    EXPECT_EQ(d.tokens, full ? 56 : 24);
    EXPECT_NEAR(d.mean, recorded.mean, 1e-3 * recorded.mean);
    EXPECT_NEAR(d.error, recorded.error, 1e-3 * recorded.error);
    EXPECT_NEAR(d.median, recorded.median, 1e-2 * recorded.median);
    EXPECT_NEAR(d.most, recorded.most, 1e-3 * recorded.most);
    EXPECT_EQ(d.same_top, recorded.same_top);
    EXPECT_NEAR(d.rms_change, recorded.rms_change, 1e-3);
    EXPECT_NEAR(d.ratio, recorded.ratio, 1e-3 * recorded.ratio);
    EXPECT_LT(*compared.others[0].cosine, 0.9);
    EXPECT_LE(*compared.others[0].least_cosine, *compared.others[0].cosine);
    const Perplexity own = perplexity(other, text, o), theirs = perplexity(base, text, o);
    EXPECT_NEAR(d.nats, own.nats, 1e-5);
    EXPECT_NEAR(d.nats_error * own.value, own.error, 1e-4);
    EXPECT_NEAR(d.other_nats, theirs.nats, 1e-5);
  }
}

TEST(CompareModels, AgainstSumsInDouble) {
  const arch::Model a = tiny_model(1), b = tiny_model(3);
  const LoadedModel base(engine(), a), other(engine(), b);
  PerplexityOptions o;
  o.length = 8;
  o.windows = 1;
  o.exact = true;
  const LoadedModel* const others[] = {&other};
  const std::vector<text::TokenId> text = some_text();
  const Divergence d = compare_models(base, others, text, o).others[0].divergence;
  // By sessions, token after token.
  Session one(base, {.exact = true}), two(other, {.exact = true});
  double sum = 0, most = 0;
  for (int64_t t = 0; t < 7; ++t) {
    const std::span<const text::TokenId> id(text.data() + t, 1);
    const auto logs = [](std::span<const float> x) {
      double total = 0;
      for (const float v : x) total += std::exp(double{v});
      std::vector<double> out;
      for (const float v : x) out.push_back(v - std::log(total));
      return out;
    };
    const std::vector<double> p = logs(one.feed(id)), q = logs(two.feed(id));
    if (t < 4) continue;
    double kl = 0;
    for (size_t v = 0; v < p.size(); ++v) kl += std::exp(p[v]) * (p[v] - q[v]);
    sum += kl;
    most = std::max(most, kl);
  }
  EXPECT_EQ(d.tokens, 3);
  EXPECT_NEAR(d.mean, sum / 3, 1e-4 * sum);
  EXPECT_NEAR(d.most, most, 1e-4 * most);
}

TEST(CompareModels, WhatCannotBeCompared) {
  const arch::Model a = tiny_model(1);
  arch::Model b = initialise(
      test_library()->family("llama"),
      [] {
        graph::Config c = tiny_config();
        c["vocab"] = 12;
        return c;
      }(),
      1);
  EXPECT_THROW(require_same_tokens(a, b), Error);
  require_same_tokens(a, a);
  // Logits beyond all numbers.
  arch::Model broken = tiny_model(2);
  arch::Weight& w = broken.weights.at("output");
  std::vector<float> values(w.f32().begin(), w.f32().end());
  for (float& v : values) v *= 1e38F;
  w = arch::f32_weight(w.type.shape, values);
  const LoadedModel base(engine(), a), other(engine(), broken);
  const LoadedModel* const others[] = {&other};
  PerplexityOptions o;
  o.length = 8;
  try {
    (void)compare_models(base, others, some_text(), o);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::numeric);
    EXPECT_NE(std::string(e.what()).find("logits"), std::string::npos) << e.what();
  }
  const std::vector<text::TokenId> few = {1, 2, 3};
  EXPECT_THROW((void)compare_models(base, others, few, o), Error);
}

}  // namespace
}  // namespace lumen::model::infer
