// Tokenizer efficiency on a text: counts separately for Korean and English words. Words are separated by white space; a
// word with Hangul is Korean, one with ASCII letters and no Hangul English. Proved by
// tests/model/text/text_stats_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::text {

struct TextCounts {
  int64_t tokens = 0, words = 0, characters = 0, bytes = 0;
};

struct TextStats {
  TextCounts all, korean, english;              // by language, a word includes the spaces before it, as tokens do
  int64_t syllables = 0, broken_syllables = 0;  // Hangul syllables; those not contained in a single token
  int64_t vocabulary = 0, hangul_tokens = 0, single_syllables = 0;

  std::string table() const;
  std::string json() const;
};

TextStats text_stats(const Tokenizer& tokenizer, std::string_view text);

}  // namespace lumen::model::text
