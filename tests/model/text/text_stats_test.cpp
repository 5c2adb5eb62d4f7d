// Needs: none. Counts of a text's tokens and words, Korean and English apart.
#include "model/text/tokenizer/text_stats.h"

#include <gtest/gtest.h>

namespace lumen::model::text {

TEST(TextStats, CountsKoreanAndEnglishApart) {
  const std::string text = "가나 ab 가";
  const TextStats s = text_stats(Tokenizer::characters(text), text);
  EXPECT_EQ(s.all.bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(s.all.words, 3);
  EXPECT_EQ(s.korean.words, 2);
  EXPECT_EQ(s.english.words, 1);
  EXPECT_EQ(s.all.tokens, 7);  // one for each character
  EXPECT_EQ(s.all.characters, 7);
  EXPECT_EQ(s.syllables, 3);
  EXPECT_EQ(s.broken_syllables, 0);
  EXPECT_EQ(s.vocabulary, 5);
  EXPECT_EQ(s.hangul_tokens, 2);
  EXPECT_EQ(s.single_syllables, 2);
}

}  // namespace lumen::model::text
