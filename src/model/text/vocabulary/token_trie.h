// A trie of token strings over bytes, to find tokens that are prefixes of a text, and to walk over all tokens by shared
// prefix. Proved by tests/model/infer/grammar/grammar_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "model/text/vocabulary/word_model.h"

namespace lumen::model::text {

class TokenTrie {
 public:
  struct Node {
    uint32_t first_child = 0;  // children are adjacent, sorted by byte
    uint16_t children = 0;
    uint8_t byte = 0;
    TokenId token = -1;  // the token that ends here, or -1
  };

  TokenTrie() = default;
  // Stores the first of several tokens with one string; `same` chains the others. Empty strings are omitted.
  explicit TokenTrie(std::vector<std::pair<std::string_view, TokenId>> tokens);

  const std::vector<Node>& nodes() const { return nodes_; }  // [0] is the root
  // The child of a node, 0 when there is none.
  uint32_t child(uint32_t node, uint8_t byte) const;
  // The next token with the same string; -1 at the end.
  TokenId same(TokenId token) const;

 private:
  std::vector<Node> nodes_{Node{}};
  std::array<uint32_t, 256> roots_{};
  std::vector<std::pair<TokenId, TokenId>> same_;  // ascending
};

}  // namespace lumen::model::text
