// Byte-pair encoding: a word starts as its bytes, then the adjacent pair with the lowest rank is merged until none is
// left; equal ranks go leftmost first. A heap of candidate pairs with a check for stale entries makes it O(n log n).
// Proved by tests/model/tokenizer_test.cpp and byte_pair_test.cpp (against the quadratic definition).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>

#include "model/text/word_model.h"

namespace lumen::model {

// Pairs of ids to the id of their concatenation and the rank of that merge. Open addressing, filled once.
class PairTable {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: no merge
    TokenId id = -1;
  };
  explicit PairTable(size_t expected = 0);
  // False when the pair is there already (the first one counts).
  bool insert(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const;
  void grow();

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

using TokenMap = std::unordered_map<std::string, TokenId>;

class BytePairModel : public WordModel {
 public:
  // `bytes[b]` is the token of byte b, -1 when the vocabulary has none. `whole`, if given, is the vocabulary in which a
  // word is looked up whole before anything else (byte-level alphabet); it and `verbatim`, which marks tokens that
  // words never are, must outlive the model. `unknown`: the token for bytes without one; without it such a byte is an
  // Error.
  BytePairModel(std::array<TokenId, 256> bytes, PairTable merges, const TokenMap* whole,
                const std::vector<bool>* verbatim, std::optional<TokenId> unknown)
      : bytes_(bytes), merges_(std::move(merges)), whole_(whole), verbatim_(verbatim), unknown_(unknown) {}

  void encode(std::string_view word, std::vector<TokenId>& out) const override;

 private:
  std::array<TokenId, 256> bytes_;
  PairTable merges_;
  const TokenMap* whole_;
  const std::vector<bool>* verbatim_;
  std::optional<TokenId> unknown_;
};

}  // namespace lumen::model
