// needs: none. Tokens that end an output beyond the tokenizer's own, and control tokens whose names are shown.
#include "model/infer/generate/answer.h"

#include <gtest/gtest.h>

namespace lumen::model {
namespace {

Tokenizer tokenizer_with_marks() {
  BpeTraining options;
  options.specials = {"<|end|>", "[THINK]"};
  options.vocabulary = 256 + std::ssize(options.specials);
  options.end_of_text = "<|end|>";
  return Tokenizer::train("a", options);
}

// Draws these tokens greedily; returns the output's text.
std::string drawn(const Tokenizer& tokenizer, const GenerateOptions& options, const std::vector<TokenId>& ids,
                  int64_t made) {
  SamplerOptions greedy;
  greedy.temperature = 0;
  Sampler sampler(greedy);
  std::string shown;
  Answer answer(tokenizer, options, sampler, nullptr, nullptr, [&](std::string_view text) { shown += text; });
  for (const TokenId id : ids) {
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
  const Tokenizer tokenizer = tokenizer_with_marks();
  const auto ids = tokenizer.encode("abc");
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(drawn(tokenizer, {}, ids, 3), "abc");
  EXPECT_EQ(drawn(tokenizer, {.ends = {ids[1]}}, ids, 2), "a");
}

TEST(Answer, ControlTokensAreShownOnRequest) {
  const Tokenizer tokenizer = tokenizer_with_marks();
  const auto ids = tokenizer.encode("a[THINK]b", {.parse_special = true});
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(drawn(tokenizer, {}, ids, 3), "ab");
  EXPECT_EQ(drawn(tokenizer, {.shown = {ids[1]}}, ids, 3), "a[THINK]b");
}

}  // namespace
}  // namespace lumen::model
