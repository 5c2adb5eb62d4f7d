// needs: none. Sequences with different adapters, or none, share steps, and each is the one that is written with its
// adapter alone.
#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "model/infer/generate/sequence_batch.h"
#include "model/infer/measure/embed.h"
#include "tests/model/tiny.h"

namespace lumen::model {
namespace {

Model base_model() {
  Model m = tiny_model();
  m.tokenizer = Tokenizer::characters("abcdefghij ");
  return m;
}

// An adapter of those matrices whose names have one of the endings, with numbers of its own.
ScaledAdapter adapter_of(const Model& m, const std::vector<std::string>& endings, int64_t rank, double scale,
                         uint32_t seed) {
  ScaledAdapter out;
  out.scale = scale;
  for (const Parameter& p : m.parameters) {
    if (!std::ranges::any_of(endings, [&](const std::string& e) { return p.name.ends_with(e); })) continue;
    const auto filled = [&](const graph::Shape& shape) {
      std::vector<float> values(graph::elements(shape).number());
      for (float& v : values) {
        seed = seed * 1664525 + 1013904223;
        v = float(int(seed >> 16) % 1000 - 500) / 1000;
      }
      return f32_weight(shape, values);
    };
    const graph::Dim narrow(rank);
    AdapterPart part;
    part.a = is_looked_up(p) ? filled({p.shape[0], narrow}) : filled({narrow, p.shape[1]});
    part.b = is_looked_up(p) ? filled({p.shape[1], narrow}) : filled({p.shape[0], narrow});
    out.adapter.parts.emplace(p.name, std::move(part));
  }
  return out;
}

std::vector<AdapterSet> sets_of(const Model& m) {
  return {{},
          {adapter_of(m, {"wq", "wv"}, 2, 1, 3)},
          {adapter_of(m, {"embed", "gate", "up", "down", "output"}, 5, 0.5, 4)},
          {adapter_of(m, {"wk", "wo", "down"}, 3, -2, 5), adapter_of(m, {"wq"}, 1, 1, 6)}};
}

SequenceOrder order_of(const Model& m, const std::string& prompt, int64_t set) {
  SequenceOrder order;
  order.prompt = m.tokenizer->encode(prompt);
  order.set = set;
  order.sampling.temperature = 0;
  order.generate.predict = 8;
  return order;
}

SessionOptions small_session() {
  SessionOptions session;
  session.exact = true;
  session.context = 128;
  session.chunk = 4;
  session.page = 2;
  return session;
}

TEST(AdaptersTogether, EachSequenceIsThatOfItsAdapterAlone) {
  const Model m = base_model();
  const std::vector<AdapterSet> sets = sets_of(m);
  const std::vector<std::string> prompts = {"abcab", "j", "feed abc"};
  std::vector<std::vector<std::string>> alone(sets.size());
  for (size_t s = 0; s < sets.size(); ++s) {
    const LoadedModel one(engine(), m, sets[s]);
    for (const std::string& prompt : prompts) {
      const SequenceOrder order = order_of(m, prompt, 0);
      Generator g(one, {.context = 16, .exact = true}, order.sampling, order.generate);
      alone[s].push_back(g.answer(order.prompt, true, [](std::string_view) {}, [] { return true; }).text);
    }
    for (size_t before = 0; before < s; ++before) EXPECT_NE(alone[s], alone[before]);
  }
  const LoadedModel loaded(engine(), m, sets);
  EXPECT_EQ(loaded.sets(), 4);
  for (const bool has_draft : {false, true}) {  // rows of a sequence that are drafted have its adapter, too
    ManyLimits limits{.sequences = 12, .kept = 2};
    if (has_draft) limits = with_drafts({.look_up = true, .most = 3}, limits);
    SequenceBatch batch(loaded, small_session(), limits, 12);
    if (has_draft) batch.draft_with(std::make_unique<ManyLookUpDraft>());
    std::map<std::pair<size_t, size_t>, ManyAnswer> answers;
    for (size_t p = 0; p < prompts.size(); ++p) {
      for (size_t s = 0; s < sets.size(); ++s) {
        SequenceOrder order = order_of(m, prompts[p], int64_t(s));
        order.done = [&answers, p, s](const ManyAnswer& answer) { answers[{p, s}] = answer; };
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
  const Model m = base_model();
  const LoadedModel loaded(engine(), m, sets_of(m));
  SequenceBatch batch(loaded, small_session(), {.sequences = 2, .kept = 4}, 2);
  std::vector<int64_t> shared;
  for (const int64_t set : {1, 2, 0, 1, 2}) {
    SequenceOrder order = order_of(m, "abcdefgh", set);
    order.generate.predict = 1;
    order.done = [&](const ManyAnswer& answer) { shared.push_back(answer.shared); };
    batch.add(std::move(order));
    while (batch.step()) {
    }
  }
  EXPECT_EQ(shared, (std::vector<int64_t>{0, 0, 0, 7, 7}));
}

TEST(AdaptersTogether, VectorsAreThoseOfTheAdapterAlone) {
  const Model m = base_model();
  const std::vector<AdapterSet> sets = sets_of(m);
  const LoadedModel loaded(engine(), m, sets);
  Embedder together(loaded, {.exact = true});
  const std::vector<std::vector<TokenId>> sequences = {m.tokenizer->encode("abc"), m.tokenizer->encode("hid bab")};
  for (size_t s = 0; s < sets.size(); ++s) {
    const LoadedModel one(engine(), m, sets[s]);
    Embedder alone(one, {.exact = true});
    const auto got = together.embed_all(sequences, Pooling::mean, {}, int64_t(s)),
               wanted = alone.embed_all(sequences, Pooling::mean);
    for (size_t t = 0; t < sequences.size(); ++t) EXPECT_GT(cosine(got[t].at(0), wanted[t].at(0)), 0.99999) << s;
  }
}

}  // namespace
}  // namespace lumen::model
