// needs: none. Sequences that are generated together with drafts are those without: whatever is proposed, with
// samplers, grammars, stops, windows, narrowed rows, adapters and pages that run out; and right drafts save steps.
#include "model/infer/generate/many_draft.h"

#include "base/error.h"
#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/generate_many.h"
#include "tests/model/infer/generate/spoken.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kDraft = 4;
const std::vector<std::string> kPrompts = {"abcab", "j", "feed abc feed", "abcabd", "ha ha ha", "cab"};

ManyOptions plain(double temperature) {
  ManyOptions o;
  o.session.exact = true;
  o.session.page = 4;
  o.session.chunk = 8;
  o.sampling.temperature = temperature;
  o.generate.predict = 20;
  o.parallel = 3;
  return o;
}

std::vector<ManyRequest> requests(const arch::Model& m) {
  std::vector<ManyRequest> out;
  for (const std::string& p : kPrompts) out.push_back({m.tokenizer->encode(p), uint32_t(out.size())});
  return out;
}

// Whose answers are compared; returns those with the draft.
std::vector<ManyAnswer> expect_same(const LoadedModel& loaded, ManyOptions o, DraftOptions draft) {
  const auto all = requests(loaded.model());
  const auto go_on = [] { return true; };
  const auto wanted = answer_all(loaded, o, all, {}, go_on);
  draft.most = kDraft;
  o.draft = draft;
  const auto got = answer_all(loaded, o, all, {}, go_on);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(got[i].text, wanted[i].text) << i;
    EXPECT_EQ(got[i].reason, wanted[i].reason) << i;
    EXPECT_EQ(got[i].made, wanted[i].made) << i;
    EXPECT_EQ(got[i].stop, wanted[i].stop) << i;
    EXPECT_EQ(wanted[i].drafted, 0);
    EXPECT_LE(got[i].accepted, got[i].drafted);
  }
  return got;
}

std::pair<int64_t, int64_t> counts(const std::vector<ManyAnswer>& answers) {
  std::pair<int64_t, int64_t> out;
  for (const ManyAnswer& a : answers) {
    out.first += a.drafted;
    out.second += a.accepted;
  }
  return out;
}

TEST(ManyDraft, SequencesAreThoseWithoutDrafts) {
  const arch::Model m = spoken(), other = spoken(2);
  const LoadedModel loaded(engine(), m), small(engine(), other);
  for (const double temperature : {0.0, 0.9}) {
    for (const DraftOptions& draft : {DraftOptions{.look_up = true}, {.model = &loaded}, {.model = &small}}) {
      const auto [drafted, accepted] = counts(expect_same(loaded, plain(temperature), draft));
      EXPECT_GT(drafted, 0);
      // What the model itself finds likeliest is what is written without chance.
      if (draft.model != &loaded || temperature > 0) continue;
      EXPECT_EQ(accepted, drafted);
      EXPECT_GT(accepted, std::ssize(kPrompts) * 10);
    }
  }
}

TEST(ManyDraft, GrammarsStopsAndPenaltiesHold) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  const DraftOptions itself{.model = &loaded}, look_up{.look_up = true};
  ManyOptions o = plain(0);
  o.generate.grammar = "root ::= ([a-e]{2,4} \" \" [f-j]{1,2}){3}";
  EXPECT_GT(counts(expect_same(loaded, o, itself)).first, 0);
  (void)expect_same(loaded, o, look_up);
  o.generate.grammar.clear();
  o.generate.stops = {"a", "be", "cc"};
  (void)expect_same(loaded, o, itself);
  o = plain(0.8);
  o.sampling.repeat_penalty = 1.3;
  o.sampling.frequency_penalty = 0.2;
  o.session.narrow = Narrow::always;
  (void)expect_same(loaded, o, itself);
  o.generate.predict = 1;  // nothing to draft
  EXPECT_EQ(counts(expect_same(loaded, o, itself)).first, 0);
  o = plain(0);
  o.generate.predict = -1;  // until the context ends
  for (const ManyAnswer& a : expect_same(loaded, o, itself)) EXPECT_EQ(a.reason, EndReason::context);
}

TEST(ManyDraft, DraftsTakeNobodysPages) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = plain(0);
  o.parallel = 6;
  o.session.page = 2;
  o.session.context = 60;  // all begin in it, two end in it
  int64_t again = 0;
  for (const ManyAnswer& a : expect_same(loaded, o, {.model = &loaded})) again += a.again;
  EXPECT_GT(again, 0);
}

// Pages of layers with a window go back only when it is certain what the sequence is.
TEST(ManyDraft, WindowsAreThereForWhatWasWrong) {
  for (const char* name : {"mistral", "gemma3"}) {
    arch::Model m = read_hf(
        test_library(), std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures" / "families" / name);
    m.config["context"] = 256;
    m.config["window_size"] = 7;
    m.tokenizer = text::Tokenizer::characters("abcdefghij ");
    const LoadedModel loaded(engine(), m);
    ManyOptions o = plain(0);
    o.session.page = 2;
    o.session.chunk = 4;
    o.session.context = 600;
    o.generate.predict = 40;
    const auto [drafted, accepted] = counts(expect_same(loaded, o, {.look_up = true}));
    EXPECT_GT(drafted, accepted) << name;
    EXPECT_GT(accepted, 0) << name;
    if (std::string(name) == "mistral") (void)expect_same(loaded, o, {.model = &loaded});
  }
}

// Proposes the same for every sequence, right or not, and more than it was asked for never.
class Stubborn : public ManyDraft {
 public:
  std::vector<std::vector<text::TokenId>> propose(std::span<const DraftRequest> requests) override {
    std::vector<std::vector<text::TokenId>> out;
    for (const DraftRequest& w : requests) out.emplace_back(w.most, text::TokenId(w.tokens.back()));
    return out;
  }
  void forget(uint64_t sequence) override { forgotten.push_back(sequence); }
  std::vector<uint64_t> forgotten;
};

std::string written(SequenceBatch& batch, const arch::Model& m, const std::string& prompt, ManyAnswer* answer,
                    const std::string& expected = "") {
  SequenceOrder order;
  order.prompt = m.tokenizer->encode(prompt);
  order.sampling.temperature = 0.7;
  order.sampling.seed = 5;
  order.generate.predict = 24;
  if (!expected.empty())
    order.expected = std::make_shared<const std::vector<text::TokenId>>(m.tokenizer->encode(expected));
  order.done = [&](const ManyAnswer& a) { *answer = a; };
  batch.add(std::move(order));
  while (batch.step()) {
  }
  return answer->text;
}

SessionOptions in_batch() {
  return {.context = 128, .chunk = 8, .page = 4, .exact = true};
}

// What ended sequences leave for others is what they read, without what was proposed.
TEST(ManyDraft, PrefixesThatAreKeptAreThoseOfSequences) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  SequenceBatch alone(loaded, in_batch(), {.sequences = 2}, 2);
  SequenceBatch batch(loaded, in_batch(), with_drafts({.look_up = true, .most = kDraft}, {.sequences = 2, .kept = 2}),
                      2);
  auto owned = std::make_unique<Stubborn>();
  const Stubborn& stubborn = *owned;
  batch.draft_with(std::move(owned));
  ManyAnswer answer, none;
  const std::string first = written(batch, m, "abc", &answer);
  EXPECT_EQ(first, written(alone, m, "abc", &none));
  EXPECT_GT(answer.drafted, answer.accepted);
  EXPECT_EQ(stubborn.forgotten, std::vector<uint64_t>{1});
  EXPECT_EQ(written(batch, m, "abc" + first, &answer), written(alone, m, "abc" + first, &none));
  EXPECT_EQ(answer.shared, 26);  // all but the last, which nobody read
}

// A sequence that its client knew takes a quarter of the steps, without any other draft and rows of its own.
TEST(ManyDraft, WhatIsExpectedIsReadAtOnce) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  SequenceBatch batch(loaded, in_batch(), with_drafts({.most = kDraft}, {.sequences = 5}), 5);
  ManyAnswer plain_answer, answer;
  const std::string text = written(batch, m, "feed", &plain_answer);
  EXPECT_EQ(plain_answer.drafted, 0);
  EXPECT_EQ(written(batch, m, "feed", &answer, text), text);
  EXPECT_EQ(answer.accepted, answer.drafted);
  EXPECT_GE(answer.accepted, 16);
  // Where it begins otherwise, and where it is nothing like it.
  EXPECT_EQ(written(batch, m, "feed", &answer, "jjjj" + text.substr(2)), text);
  EXPECT_GT(answer.accepted, 8);
  EXPECT_EQ(written(batch, m, "feed", &answer, "j"), text);
}

TEST(ExpectedDraft, FollowsTheOutputWhereItAgrees) {
  const auto expected =
      std::make_shared<const std::vector<text::TokenId>>(std::vector<text::TokenId>{1, 2, 3, 4, 5, 1, 2, 6, 7});
  const auto asked = [](ExpectedDraft& d, std::vector<text::TokenId> text, int64_t most) {
    return d.propose(text, most);
  };
  ExpectedDraft d(expected, 2);
  EXPECT_EQ(asked(d, {9, 9, 1}, 2), (std::vector<text::TokenId>{2, 3}));
  EXPECT_EQ(asked(d, {9, 9, 1, 2, 8}, 2), std::vector<text::TokenId>{});
  EXPECT_EQ(asked(d, {9, 9, 1, 2, 8, 4, 5}, 9), (std::vector<text::TokenId>{1, 2, 6, 7}));
  EXPECT_EQ(asked(d, {9, 9, 8, 1, 2}, 2), (std::vector<text::TokenId>{6, 7}));  // the next such place
  EXPECT_EQ(asked(d, {9, 9, 8, 6, 7}, 2), std::vector<text::TokenId>{});        // its end
  EXPECT_EQ(asked(d, {9}, 2), std::vector<text::TokenId>{});
  ExpectedDraft nothing(std::make_shared<const std::vector<text::TokenId>>(), 0);
  EXPECT_EQ(asked(nothing, {1, 2, 3}, 4), std::vector<text::TokenId>{});
}

TEST(DraftPace, TakesLessWhereItWasWrong) {
  DraftPace pace;
  EXPECT_EQ(pace.next(16), 8);
  pace.learn(8, 8);
  EXPECT_EQ(pace.next(64), 16);
  pace.learn(16, 2);
  EXPECT_EQ(pace.next(64), 3);
  pace.learn(3, 0);
  EXPECT_EQ(pace.next(64), 1);
  pace.learn(1, 0);
  EXPECT_EQ(pace.next(64), 0);  // a step without
  EXPECT_EQ(pace.next(64), 1);
  for (int i = 0; i < 40; ++i) pace.learn(1, 0);
  int64_t rest = 0;
  while (pace.next(64) == 0) ++rest;
  EXPECT_EQ(rest, 16);
  pace.learn(1, 1);
  EXPECT_EQ(pace.next(64), 2);
}

}  // namespace
}  // namespace lumen::model::infer
