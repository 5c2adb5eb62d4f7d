// Fast parser for the large parts of a tokenizer.json (the model's vocabulary and merges): parsing them with the JSON
// library would dominate a program's start. For anything unexpected the scan gives up, and the caller parses the text
// with the JSON library, which reports the error. Proved by tests/model/text/vocabulary_scan_test.cpp, and by all tests
// of tokenizers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::model::text {

struct ScannedVocabulary {
  std::string rest;  // the text with an empty object or list for each part that was read
  std::optional<std::vector<std::pair<std::string, uint64_t>>> tokens;  // "vocab", an object: strings and ids
  std::optional<std::vector<std::pair<std::string, double>>> pieces;    // "vocab", a list: strings and scores
  std::optional<std::vector<std::pair<std::string, std::string>>> merges;
};

// nullopt when the text has another form. `rest` may still be malformed; the parts are valid, except that a string may
// occur twice in `tokens`.
std::optional<ScannedVocabulary> scan_vocabulary(std::string_view text);

}  // namespace lumen::model::text
