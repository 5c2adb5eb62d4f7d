// The large parts of a tokenizer.json (the vocabulary and the merges of its model), read straight from the text: as
// values of the JSON library they would cost most of a program's start. Whatever is not plainly as expected makes the
// scan give up, and the text is then read in the general way, which says what is wrong with it. Proved by
// tests/model/text/vocabulary_scan_test.cpp, and by all tests of tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::model {

struct ScannedVocabulary {
  std::string rest;  // the text with an empty object or list in place of each part that was read
  std::optional<std::vector<std::pair<std::string, uint64_t>>> tokens;  // "vocab", an object: strings and ids
  std::optional<std::vector<std::pair<std::string, double>>> pieces;    // "vocab", a list: strings and scores
  std::optional<std::vector<std::pair<std::string, std::string>>> merges;
};

// Nothing when the text is another one. The rest may still be wrong; the parts are not, but for a text of `tokens` that
// occurs twice.
std::optional<ScannedVocabulary> scan_vocabulary(std::string_view text);

}  // namespace lumen::model
