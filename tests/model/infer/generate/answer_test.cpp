// needs: none. Tokens that end an output beyond the tokenizer's own, and control tokens whose names are shown.
#include "model/infer/generate/answer.h"

#include <gtest/gtest.h>

namespace lumen::model::infer {
namespace {

text::Tokenizer tokenizer_with_marks() {
  text::BpeTraining options;
  options.specials = {"<|end|>", "[THINK]"};
  options.vocabulary = 256 + std::ssize(options.specials);
  options.end_of_text = "<|end|>";
  return text::Tokenizer::train("a", options);
}

// Draws these tokens greedily; returns the output's text.
std::string drawn(const text::Tokenizer& tokenizer, const GenerateOptions& options,
                  const std::vector<text::TokenId>& ids, int64_t made) {
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy);
  std::string shown;
  Answer answer(tokenizer, options, sampler, nullptr, nullptr, [&](std::string_view text) { shown += text; });
  for (const text::TokenId id : ids) {
    if (answer.ended()) break;
    std::vector<float> row(size_t(tokenizer.size()), 0.0F);
    row[size_t(id)] = 1;
    (void)answer.draw(LogitRow(std::move(row)));
  }
  if (!answer.ended()) answer.end(EndReason::limit);
  (void)answer.finish();
  EXPECT_EQ(answer.made(), made);
  EXPECT_EQ(answer.text(), shown);
  return shown;
}

TEST(Answer, FurtherTokensEndIt) {
  const text::Tokenizer tokenizer = tokenizer_with_marks();
  const auto ids = tokenizer.encode("abc");
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(drawn(tokenizer, {}, ids, 3), "abc");
  EXPECT_EQ(drawn(tokenizer, {.ends = {ids[1]}}, ids, 2), "a");
}

TEST(Answer, ControlTokensAreShownOnRequest) {
  const text::Tokenizer tokenizer = tokenizer_with_marks();
  const auto ids = tokenizer.encode("a[THINK]b", {.parse_special = true});
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(drawn(tokenizer, {}, ids, 3), "ab");
  EXPECT_EQ(drawn(tokenizer, {.shown = {ids[1]}}, ids, 3), "a[THINK]b");
}

// Draws from rows in which the end is the most likely token and the other ids come next, in their order.
std::string drawn_past_ends(const text::Tokenizer& tokenizer, const GenerateOptions& options,
                            const std::vector<text::TokenId>& ids, EndReason reason) {
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy);
  Answer answer(tokenizer, options, sampler, nullptr, nullptr, [](std::string_view) {});
  for (const text::TokenId id : ids) {
    if (answer.ended()) break;
    std::vector<float> row(size_t(tokenizer.size()), 0.0F);
    row[size_t(*tokenizer.eos())] = 3;
    for (const text::TokenId end : options.ends) row[size_t(end)] = 2;
    row[size_t(id)] += 1;
    (void)answer.draw(LogitRow(std::move(row)));
  }
  EXPECT_TRUE(answer.ended());
  if (!answer.ended()) answer.end(EndReason::interrupted);
  EXPECT_EQ(answer.finish(), reason);
  return answer.text();
}

TEST(Answer, TheLeastLengthComesBeforeEnds) {
  const text::Tokenizer tokenizer = tokenizer_with_marks();
  const auto ids = tokenizer.encode("abcde");
  ASSERT_EQ(ids.size(), 5U);
  const text::TokenId further = tokenizer.encode("z")[0];
  EXPECT_EQ(drawn_past_ends(tokenizer, {}, ids, EndReason::end_token), "");
  EXPECT_EQ(drawn_past_ends(tokenizer, {.least = 3}, ids, EndReason::end_token), "abc");
  EXPECT_EQ(drawn_past_ends(tokenizer, {.least = 3, .ends = {further}}, ids, EndReason::end_token), "abc");
  // Stop strings are searched in what comes after, as an end token would be.
  EXPECT_EQ(drawn_past_ends(tokenizer, {.least = 4, .stops = {"b"}}, ids, EndReason::end_token), "abcd");
  EXPECT_EQ(drawn_past_ends(tokenizer, {.predict = 2, .least = 2}, ids, EndReason::limit), "ab");
  // What is never drawn stays so.
  SamplerOptions barred;
  barred.temperature = 0;
  barred.forbidden = {*tokenizer.eos()};
  Sampler sampler(barred);
  const std::vector<text::TokenId> both = {*tokenizer.eos(), further};
  const std::vector<text::TokenId> fresh = sampler.bar(both);
  EXPECT_EQ(fresh, std::vector<text::TokenId>{further});
  std::vector<float> row(size_t(tokenizer.size()), 0.0F);
  row[size_t(*tokenizer.eos())] = 3;
  row[size_t(further)] = 2;
  row[size_t(ids[0])] = 1;
  EXPECT_EQ(sampler.pick(row), ids[0]);
  sampler.permit(fresh);
  EXPECT_EQ(sampler.pick(row), further);
}

// The grammar ends an output, also before its least length: nothing can follow.
TEST(Answer, AGrammarEndsBeforeTheLeastLength) {
  const text::Tokenizer tokenizer = tokenizer_with_marks();
  const Constraint constraint(tokenizer, "root ::= \"ab\"");
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy);
  GrammarMatcher matcher(constraint.grammar);
  const GenerateOptions options{.least = 9};
  Answer answer(tokenizer, options, sampler, &constraint, &matcher, [](std::string_view) {});
  for (int i = 0; i < 4 && !answer.ended(); ++i) {
    const LogitRow row(std::vector<float>(size_t(tokenizer.size()), 0.0F));
    EXPECT_TRUE(answer.choose(row));  // as a batch does before it draws
    (void)answer.draw(row);
  }
  ASSERT_TRUE(answer.ended());
  EXPECT_EQ(answer.finish(), EndReason::grammar);
  EXPECT_EQ(answer.text(), "ab");
  EXPECT_EQ(answer.made(), 2);
}

}  // namespace
}  // namespace lumen::model::infer
