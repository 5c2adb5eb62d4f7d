// needs: none. Sequences with different adapters, or none, share steps, and each is the one that is written with its
// adapter alone.
#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/sequence_batch.h"
#include "model/infer/measure/embed.h"
#include "tests/model/tiny.h"

namespace lumen::model::serve {
namespace {

arch::Model base_model() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  return m;
}

// An adapter of those matrices whose names have one of the endings, with numbers of its own.
arch::ScaledAdapter adapter_of(const arch::Model& m, const std::vector<std::string>& endings, int64_t rank,
                               double scale, uint32_t seed) {
  arch::ScaledAdapter out;
  out.scale = scale;
  for (const arch::Parameter& p : m.parameters) {
    if (!std::ranges::any_of(endings, [&](const std::string& e) { return p.name.ends_with(e); })) continue;
    const auto filled = [&](const graph::Shape& shape) {
      std::vector<float> values(graph::elements(shape).number());
      for (float& v : values) {
        seed = seed * 1664525 + 1013904223;
        v = float(int(seed >> 16) % 1000 - 500) / 1000;
      }
      return arch::f32_weight(shape, values);
    };
    const graph::Dim narrow(rank);
    arch::AdapterPart part;
    part.a = is_looked_up(p) ? filled({p.shape[0], narrow}) : filled({narrow, p.shape[1]});
    part.b = is_looked_up(p) ? filled({p.shape[1], narrow}) : filled({p.shape[0], narrow});
    out.adapter.parts.emplace(p.name, std::move(part));
  }
  return out;
}

std::vector<arch::AdapterSet> sets_of(const arch::Model& m) {
  return {{},
          {adapter_of(m, {"wq", "wv"}, 2, 1, 3)},
          {adapter_of(m, {"embed", "gate", "up", "down", "output"}, 5, 0.5, 4)},
          {adapter_of(m, {"wk", "wo", "down"}, 3, -2, 5), adapter_of(m, {"wq"}, 1, 1, 6)}};
}

infer::SequenceOrder order_of(const arch::Model& m, const std::string& prompt, int64_t set) {
  infer::SequenceOrder order;
  order.prompt = m.tokenizer->encode(prompt);
  order.set = set;
  order.sampling.temperature = 0;
  order.generate.predict = 8;
  return order;
}

infer::SessionOptions small_session() {
  infer::SessionOptions session;
  session.exact = true;
  session.context = 128;
  session.chunk = 4;
  session.page = 2;
  return session;
}

TEST(AdaptersTogether, EachSequenceIsThatOfItsAdapterAlone) {
  const arch::Model m = base_model();
  const std::vector<arch::AdapterSet> sets = sets_of(m);
  const std::vector<std::string> prompts = {"abcab", "j", "feed abc"};
  std::vector<std::vector<std::string>> alone(sets.size());
  for (size_t s = 0; s < sets.size(); ++s) {
    const infer::LoadedModel one(engine(), m, sets[s]);
    for (const std::string& prompt : prompts) {
      const infer::SequenceOrder order = order_of(m, prompt, 0);
      infer::Generator g(one, {.context = 16, .exact = true}, order.sampling, order.generate);
      alone[s].push_back(g.answer(order.prompt, true, [](std::string_view) {}, [] { return true; }).text);
    }
    for (size_t before = 0; before < s; ++before) EXPECT_NE(alone[s], alone[before]);
  }
  const infer::LoadedModel loaded(engine(), m, sets);
  EXPECT_EQ(loaded.sets(), 4);
  for (const bool has_draft : {false, true}) {  // rows of a sequence that are drafted have its adapter, too
    infer::ManyLimits limits{.sequences = 12, .kept = 2};
    if (has_draft) limits = with_drafts({.look_up = true, .most = 3}, limits);
    infer::SequenceBatch batch(loaded, small_session(), limits, 12);
    if (has_draft) batch.draft_with(std::make_unique<infer::ManyLookUpDraft>());
    std::map<std::pair<size_t, size_t>, infer::ManyAnswer> answers;
    for (size_t p = 0; p < prompts.size(); ++p) {
      for (size_t s = 0; s < sets.size(); ++s) {
        infer::SequenceOrder order = order_of(m, prompts[p], int64_t(s));
        order.done = [&answers, p, s](const infer::ManyAnswer& answer) { answers[{p, s}] = answer; };
        batch.add(std::move(order));
      }
    }
    int64_t most = 0, drafted = 0;
    while (batch.step()) most = std::max(most, batch.running());
    EXPECT_GT(most, 4);
    for (const auto& [at, answer] : answers) {
      EXPECT_EQ(answer.text, alone[at.second][at.first]) << at.first << at.second;
      drafted += answer.drafted;
    }
    EXPECT_EQ(drafted > 0, has_draft);
    EXPECT_EQ(answers.size(), 12U);
  }
}

// What one adapter has read is nothing to another.
TEST(AdaptersTogether, BeginningsAreSharedWithinOneAdapterOnly) {
  const arch::Model m = base_model();
  const infer::LoadedModel loaded(engine(), m, sets_of(m));
  infer::SequenceBatch batch(loaded, small_session(), {.sequences = 2, .kept = 4}, 2);
  std::vector<int64_t> shared;
  for (const int64_t set : {1, 2, 0, 1, 2}) {
    infer::SequenceOrder order = order_of(m, "abcdefgh", set);
    order.generate.predict = 1;
    order.done = [&](const infer::ManyAnswer& answer) { shared.push_back(answer.shared); };
    batch.add(std::move(order));
    while (batch.step()) {
    }
  }
  EXPECT_EQ(shared, (std::vector<int64_t>{0, 0, 0, 7, 7}));
}

TEST(AdaptersTogether, VectorsAreThoseOfTheAdapterAlone) {
  const arch::Model m = base_model();
  const std::vector<arch::AdapterSet> sets = sets_of(m);
  const infer::LoadedModel loaded(engine(), m, sets);
  infer::Embedder together(loaded, {.exact = true});
  const std::vector<std::vector<text::TokenId>> sequences = {m.tokenizer->encode("abc"),
                                                             m.tokenizer->encode("hid bab")};
  for (size_t s = 0; s < sets.size(); ++s) {
    const infer::LoadedModel one(engine(), m, sets[s]);
    infer::Embedder alone(one, {.exact = true});
    const auto got = together.embed_all(sequences, infer::Pooling::mean, {}, int64_t(s)),
               wanted = alone.embed_all(sequences, infer::Pooling::mean);
    for (size_t t = 0; t < sequences.size(); ++t) EXPECT_GT(infer::cosine(got[t].at(0), wanted[t].at(0)), 0.99999) << s;
  }
}

}  // namespace
}  // namespace lumen::model::serve
