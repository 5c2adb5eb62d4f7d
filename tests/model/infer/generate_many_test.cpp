// needs: none. Many sequences at once are those that would be generated one by one, whatever their number, order,
// beginnings and ends.
#include "model/infer/generate/generate_many.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/infer/generate/generate.h"
#include "tests/model/tiny.h"

namespace lumen::model::infer {
namespace {

constexpr const char* kLetters = "abcdefghij ";

arch::Model talking_model() {
  arch::Model m = tiny_model();
  m.tokenizer = text::Tokenizer::characters(kLetters);
  return m;
}

const std::vector<std::string> kPrompts = {"abc", "abcabcabc", "j", "abcab h", "feed", "abca", "hiddef babe", "ab"};

ManyOptions options(double temperature = 0) {
  ManyOptions o;
  o.session.exact = true;
  o.sampling.temperature = temperature;
  o.generate.predict = 5;
  o.parallel = 3;
  return o;
}

std::vector<ManyRequest> requests(const arch::Model& m) {
  std::vector<ManyRequest> out;
  for (const std::string& p : kPrompts) out.push_back({m.tokenizer->encode(p), static_cast<uint32_t>(out.size())});
  return out;
}

std::string alone(const LoadedModel& loaded, const ManyRequest& request, const ManyOptions& o, EndReason* reason) {
  SamplerOptions sampling = o.sampling;
  sampling.seed = request.seed;
  Generator g(loaded, {.context = 16, .exact = true}, sampling, o.generate);
  const auto result = g.answer(request.prompt, true, [](std::string_view) {}, [] { return true; });
  *reason = result.reason;
  return result.text;
}

void expect_same(const LoadedModel& loaded, const ManyOptions& o, const std::vector<ManyRequest>& all) {
  std::vector<size_t> ended;
  const auto answers =
      answer_all(loaded, o, all, [&](size_t i, const ManyAnswer&) { ended.push_back(i); }, [] { return true; });
  ASSERT_EQ(answers.size(), all.size());
  EXPECT_EQ(ended.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EndReason reason{};
    EXPECT_EQ(answers[i].text, alone(loaded, all[i], o, &reason)) << i;
    EXPECT_EQ(answers[i].reason, reason) << i;
    EXPECT_EQ(answers[i].read + answers[i].shared, static_cast<int64_t>(all[i].prompt.size()));
  }
}

TEST(GenerateMany, SequencesAreThoseGeneratedAlone) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  const auto all = requests(m);
  for (const int64_t parallel : {1, 3, 8}) {
    ManyOptions o = options();
    o.parallel = parallel;
    expect_same(loaded, o, all);
  }
  expect_same(loaded, options(0.9), all);
}

TEST(GenerateMany, StopsAndGrammarsAreEachSequencesOwn) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = options(0.8);
  o.generate.grammar = "root ::= [a-e]{2,4} \" \" [f-j]{1,2}";
  o.generate.predict = -1;
  expect_same(loaded, o, requests(m));
  o.generate.grammar.clear();
  o.generate.stops = {"a", "be"};
  o.generate.predict = 4;
  expect_same(loaded, o, requests(m));
}

TEST(GenerateMany, BeginningsAreShared) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  const auto prompt = m.tokenizer->encode("abcdefgh");
  const ManyOptions o = options();
  const auto answers = answer_all(loaded, o, {{prompt, 1}, {prompt, 2}, {prompt, 3}}, {}, [] { return true; });
  EXPECT_EQ(answers[0].read, 8);
  EXPECT_EQ(answers[1].read, 1);
  EXPECT_EQ(answers[2].shared, 7);
  EXPECT_EQ(answers[0].text, answers[2].text);
}

TEST(GenerateMany, ASmallCacheMakesSequencesWait) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = options();
  o.parallel = 8;
  o.session.context = 16;  // two or three sequences at a time
  expect_same(loaded, o, requests(m));
  o.session.context = 9;
  EXPECT_THROW((void)answer_all(loaded, o, requests(m), {}, [] { return true; }), Error);  // a prompt of 11
}

// Sequences take pages as they grow; when none is left the last one gives up its own, and is read again later.
TEST(GenerateMany, SequencesThatGiveUpTheirPagesGoOn) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  std::vector<ManyRequest> all;
  for (const char* p : {"ab", "cd", "ef", "gh"}) all.push_back({m.tokenizer->encode(p), 5});
  ManyOptions o = options(0.9);
  o.generate.predict = 12;
  o.parallel = 4;
  o.session.page = 2;
  o.session.context = 22;  // four sequences of 13 begin in it, one and a half end in it
  expect_same(loaded, o, all);
  int64_t again = 0, made = 0;
  for (const ManyAnswer& a : answer_all(loaded, o, all, {}, [] { return true; })) {
    again += a.again;
    made += a.made;
  }
  EXPECT_GT(again, 0);
  EXPECT_EQ(made, 48);
  // Cut off while one waits: it is told, too.
  int steps = 0;
  const auto cut = answer_all(loaded, o, all, {}, [&] { return ++steps < 9; });
  for (const ManyAnswer& a : cut) EXPECT_EQ(a.reason, EndReason::interrupted);
  EXPECT_GT(cut[3].made, 0);
}

// A beginning that all share takes its pages once, and the cache is planned so.
TEST(GenerateMany, SharedBeginningsArePlannedOnce) {
  const arch::Model m = talking_model();
  const auto prompt = m.tokenizer->encode("abcdefghij");
  ManyOptions o = options();
  o.session.page = 2;
  o.parallel = 3;
  const std::vector<ManyRequest> same = {{prompt, 1}, {prompt, 2}, {prompt, 3}};
  const ManyPlan plan = plan_requests(m, o, same);
  EXPECT_EQ(plan.limits.longest, 14);
  EXPECT_EQ(plan.session.context, 14 + 2 * (14 - 8));  // pages are shared whole
  const LoadedModel loaded(engine(), m);
  expect_same(loaded, o, same);
  const std::vector<ManyRequest> apart = {{prompt, 1}, {m.tokenizer->encode("jabcdefghi"), 2}};
  EXPECT_EQ(plan_requests(m, o, apart).session.context, 28);
}

// Without a size of the cache each sequence may be as long as the model's context, and no longer.
TEST(GenerateMany, SequencesEndWithTheContext) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = options();
  o.generate.predict = -1;
  o.parallel = 2;
  const auto some = requests(m);
  const auto answers = answer_all(loaded, o, {some.begin(), some.begin() + 4}, {}, [] { return true; });
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answers[i].reason, EndReason::context);
    EXPECT_EQ(static_cast<int64_t>(kPrompts[i].size()) + answers[i].made, 16 + 1) << i;  // the last one is not read
  }
}

TEST(GenerateMany, EndsWhenTold) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  int steps = 0;
  const auto answers = answer_all(loaded, options(), requests(m), {}, [&] { return ++steps < 3; });
  EXPECT_EQ(answers[0].reason, EndReason::interrupted);
  EXPECT_EQ(answers[0].made, 2);
  EXPECT_EQ(answers[7].made, 0);
}

TEST(GenerateMany, RefusesWhatCannotBe) {
  const arch::Model m = talking_model();
  const LoadedModel loaded(engine(), m);
  ManyOptions o = options();
  EXPECT_THROW((void)answer_all(loaded, o, {}, {}, [] { return true; }), Error);
  EXPECT_THROW((void)answer_all(loaded, o, {{{}, 1}}, {}, [] { return true; }), Error);
  o.parallel = ManySession::kMostSequences + 1;
  EXPECT_THROW((void)answer_all(loaded, o, requests(m), {}, [] { return true; }), Error);
  o = options();
  o.generate.shift = true;
  EXPECT_THROW((void)answer_all(loaded, o, requests(m), {}, [] { return true; }), Error);
}

}  // namespace
}  // namespace lumen::model::infer
