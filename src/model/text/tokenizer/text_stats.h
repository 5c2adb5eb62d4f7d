// How well a tokenizer suits a text: counts for its Korean and its English words apart. A word is what stands between
// white space; it is Korean when it holds Hangul, English when it holds ASCII letters and no Hangul. Proved by
// tests/model/text/text_stats_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model {

struct TextCounts {
  int64_t tokens = 0, words = 0, characters = 0, bytes = 0;
};

struct TextStats {
  TextCounts all, korean, english;              // of parts the spaces before words count, as they do in tokens
  int64_t syllables = 0, broken_syllables = 0;  // Hangul syllables; those that no single token holds whole
  int64_t vocabulary = 0, hangul_tokens = 0, single_syllables = 0;

  std::string table() const;
  std::string json() const;
};

TextStats text_stats(const Tokenizer& tokenizer, std::string_view text);

}  // namespace lumen::model
