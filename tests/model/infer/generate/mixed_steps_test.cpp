// needs: none. Prompts and next tokens that share steps: every sequence is the one that is written with a step for each
// prompt, with windows, narrowed rows, drafts, and pages that run out; steps are fewer; logits are those of a sequence
// alone.
#include <algorithm>

#include "model/arch/checkpoint/read.h"
#include "model/infer/generate/generate_many.h"
#include "tests/model/infer/generate/spoken.h"

namespace lumen::model::infer {
namespace {

const std::vector<std::string> kPrompts = {"abcab",       "j",   "feed abc feed", "abcabd",
                                           "ha ha ha",    "cab", "abcab",         "dig a big bed if he did hide a head",
                                           "feed abc bad"};

ManyOptions with(bool mixed) {
  ManyOptions o;
  o.session.exact = true;
  o.session.page = 4;
  o.session.chunk = 16;
  o.session.mixed = mixed;
  o.sampling.temperature = 0.9;
  o.generate.predict = 12;
  o.parallel = 4;
  return o;
}

// Answers of mixed steps, which have to be those of others.
std::vector<ManyAnswer> expect_same(const LoadedModel& loaded, ManyOptions o) {
  std::vector<ManyRequest> all;
  for (const std::string& p : kPrompts) all.push_back({loaded.model().tokenizer->encode(p), uint32_t(all.size())});
  const auto go_on = [] { return true; };
  o.session.mixed = false;
  const auto wanted = answer_all(loaded, o, all, {}, go_on);
  o.session.mixed = true;
  auto got = answer_all(loaded, o, all, {}, go_on);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(got[i].text, wanted[i].text) << i;
    EXPECT_EQ(got[i].reason, wanted[i].reason) << i;
    EXPECT_EQ(got[i].made, wanted[i].made) << i;
    EXPECT_EQ(got[i].read + got[i].shared, std::ssize(all[i].prompt)) << i;
  }
  return got;
}

TEST(MixedSteps, SequencesAreThoseOfAStepForEachPrompt) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  int64_t shared = 0;
  for (const ManyAnswer& a : expect_same(loaded, with(true))) shared += a.shared;
  EXPECT_GT(shared, 0) << "beginnings that are alike are read once";
  ManyOptions o = with(true);
  o.session.narrow = Narrow::always;
  o.parallel = 9;
  (void)expect_same(loaded, o);
  o = with(true);
  o.draft = {.look_up = true, .most = 3};
  int64_t accepted = 0;
  for (const ManyAnswer& a : expect_same(loaded, o)) accepted += a.accepted;
  EXPECT_GT(accepted, 0);
}

TEST(MixedSteps, PagesRunOut) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = with(true);
  o.parallel = 6;
  o.session.page = 2;
  o.session.context = 64;
  int64_t again = 0;
  for (const ManyAnswer& a : expect_same(loaded, o)) again += a.again;
  EXPECT_GT(again, 0);
}

TEST(MixedSteps, WindowsLetGo) {
  arch::Model m = read_hf(
      test_library(), std::filesystem::path(LUMEN_SOURCE_DIR) / "tests" / "model" / "fixtures" / "families" / "gemma3");
  m.config["context"] = 256;
  m.config["window_size"] = 7;
  m.tokenizer = text::Tokenizer::characters("abcdefghij ");
  const LoadedModel loaded(engine(), m);
  ManyOptions o = with(true);
  o.session.page = 2;
  o.session.context = 600;
  o.generate.predict = 24;
  (void)expect_same(loaded, o);
}

int64_t steps_of(const LoadedModel& loaded, bool mixed) {
  SequenceBatch batch(loaded, with(mixed).session, {.sequences = 4}, 4);
  int64_t ended = 0, steps = 0;
  for (size_t i = 0; i < 4; ++i) {
    SequenceOrder order;
    order.prompt = loaded.model().tokenizer->encode(kPrompts[i]);
    order.generate.predict = 12;
    order.generate.ignore_end = true;
    order.done = [&](const ManyAnswer&) { ++ended; };
    batch.add(std::move(order));
  }
  while (batch.step()) ++steps;
  EXPECT_EQ(ended, 4);
  return steps;
}

// 5, 1, 13 and 6 tokens: three steps of 16, where four sequences begin one after another without.
TEST(MixedSteps, StepsAreFewer) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  const int64_t mixed = steps_of(loaded, true), one_by_one = steps_of(loaded, false);
  EXPECT_LT(mixed, one_by_one);
  EXPECT_LE(mixed, 12 + 2);
}

TEST(MixedSteps, LogitsAreThoseOfASequenceAlone) {
  const arch::Model m = spoken();
  const LoadedModel loaded(engine(), m);
  SessionOptions options = with(true).session;
  options.context = 128;
  ManySession many(loaded, options, {.sequences = 3});
  const std::vector<std::vector<text::TokenId>> begin = {{1, 2, 3, 4, 5}, {7}, {3, 1, 4, 1, 5, 9}},
                                                rest = {{6}, {2, 2}, {8}};
  std::vector<int> numbers;
  for (size_t i = 0; i < begin.size(); ++i) numbers.push_back(many.open());
  const auto parts = [&](const auto& tokens, size_t silent) {
    std::vector<ManySession::Part> out;
    for (size_t i = 0; i < tokens.size(); ++i) out.push_back({numbers[i], tokens[i], i != silent});
    return out;
  };
  const auto expect = [&](const LogitRow& row, size_t text, bool whole) {
    Session alone(loaded, {.context = 16, .chunk = 8, .exact = true});
    std::vector<text::TokenId> tokens = begin[text];
    if (whole) tokens.insert(tokens.end(), rest[text].begin(), rest[text].end());
    const std::span<const float> want = alone.feed(tokens);
    ASSERT_EQ(row.whole().size(), want.size());
    for (size_t v = 0; v < want.size(); ++v) EXPECT_NEAR(row.whole()[v], want[v], 1e-4) << text;
  };
  const std::vector<Asked> asked(2);
  const auto first = many.feed_mixed(parts(begin, 1), asked);
  ASSERT_EQ(first.size(), 2U);
  expect(first[0], 0, false);
  expect(first[1], 2, false);
  const auto second = many.feed_mixed(parts(rest, 0), asked);
  expect(second[0], 1, true);
  expect(second[1], 2, true);
  EXPECT_EQ(many.length(numbers[0]), 6);
  EXPECT_TRUE(many.feed_mixed(std::vector<ManySession::Part>{{numbers[0], rest[1], false}}, {}).empty());
}

}  // namespace
}  // namespace lumen::model::infer
