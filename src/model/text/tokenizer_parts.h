// What a Tokenizer consists of; shared by the files that make, use and write one. Nobody else includes this.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/text/added_tokens.h"
#include "model/text/byte_pair.h"
#include "model/text/pretokenizers.h"
#include "model/text/split.h"
#include "model/text/tokenizer.h"

namespace lumen::model {

constexpr int64_t kMaxVocabulary = int64_t{1} << 22;

struct TokenizerParts {
  std::vector<std::string> tokens;  // by id, as in the vocabulary; "" where an id has no token
  std::vector<TokenKind> kinds;
  TokenMap ids;
  std::vector<bool> verbatim;  // by id: the token's text is itself, not in the byte-level alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  bool nfc = false, ignore_merges = false;
  std::optional<TokenId> unknown;

  Splitter splitter;
  std::unique_ptr<const WordModel> model;
  AddedTokens added_raw, added_normalized;  // matched before and after normalisation

  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_of_generation;
  std::vector<TokenId> prefix, suffix;  // put around a text that asks for special tokens
  std::string chat_template;

  // Words seen lately. Encoding is a pure function of the word, so a cache never changes a result.
  mutable std::mutex cache_mutex;
  mutable TokenMap cache_index;  // word -> entry in cache_tokens
  mutable std::vector<std::vector<TokenId>> cache_tokens;
};

// Fills `ids`, builds the model from `tokens`, `merges` and the flags, and gathers the ends of generation.
// Errors name `where`.
void finish_tokenizer(TokenizerParts& parts, const std::string& where);
// An id as a number from a file; Error when outside the vocabulary.
TokenId checked_id(const TokenizerParts& parts, int64_t id, const std::string& where);

}  // namespace lumen::model
