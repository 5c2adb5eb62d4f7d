// Unigram model: pieces with scores; a word becomes the segmentation with the highest sum of scores. Ties keep the one
// found first, from left to right. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "model/text/vocabulary/token_trie.h"

namespace lumen::model::text {

class UnigramModel : public WordModel {
 public:
  struct Piece {
    std::string text;
    double score = 0;
    TokenId id = -1;
  };
  struct Options {
    double unknown_score = 0;          // of one character that is no piece
    std::optional<TokenId> unknown;    // if absent, such a character is an Error
    std::array<TokenId, 256> bytes{};  // byte tokens, -1: none; used where all bytes of an unknown text have one
    bool single_precision = false;     // sums are f32, as in SentencePiece
    bool fuse_unknown = true;          // merge adjacent unknown characters into one token
  };
  UnigramModel(std::vector<Piece> pieces, Options options);

  void encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  void unknown(std::string_view text, std::vector<TokenId>& out) const;

  std::vector<Piece> pieces_;
  TokenTrie trie_;  // its tokens are indices into pieces_
  Options options_;
};

}  // namespace lumen::model::text
