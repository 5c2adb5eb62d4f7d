// Vocabularies that are looked up: whole words, and words cut into the longest pieces from the left. Proved by
// tests/model/text/tokenizer_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "model/text/vocabulary/token_trie.h"

namespace lumen::model {

// Greedy longest pieces. The first piece of a word has `first` in front in the vocabulary, the others `continuing`.
// When any place has no piece, or the word has more than `longest` characters, the word is the unknown token.
class WordPieceModel : public WordModel {
 public:
  WordPieceModel(const std::vector<std::pair<std::string_view, TokenId>>& tokens, std::string first,
                 std::string continuing, TokenId unknown, size_t longest);
  void encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  TokenTrie trie_;
  std::string first_, continuing_;
  TokenId unknown_;
  size_t longest_;
};

// Words that are tokens, or the unknown token, or an Error.
class WholeWordModel : public WordModel {
 public:
  WholeWordModel(const std::vector<std::pair<std::string_view, TokenId>>& tokens, std::optional<TokenId> unknown);
  void encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  TokenTrie trie_;
  std::optional<TokenId> unknown_;
};

}  // namespace lumen::model
