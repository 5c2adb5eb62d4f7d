// Vocabularies without merges: whole words, and words split greedily into the longest pieces (WordPiece). Proved by
// tests/model/text/tokenizer_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "model/text/vocabulary/token_trie.h"

namespace lumen::model::text {

// Greedy longest match. In the vocabulary the first piece of a word has the prefix `first`, the others `continuing`. A
// word that cannot be split into pieces, or has more than `longest` characters, is the unknown token.
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

// A word is a token, or the unknown token, or an Error.
class WholeWordModel : public WordModel {
 public:
  WholeWordModel(const std::vector<std::pair<std::string_view, TokenId>>& tokens, std::optional<TokenId> unknown);
  void encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  TokenTrie trie_;
  std::optional<TokenId> unknown_;
};

}  // namespace lumen::model::text
