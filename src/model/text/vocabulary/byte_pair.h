// Byte-pair encoding: a word starts as its bytes or characters, then the adjacent pair with the lowest rank is merged
// until none is left; of equal ranks the leftmost is first. Proved by tests/model/text/tokenizer_test.cpp and
// byte_pair_test.cpp (against the quadratic definition).
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "model/text/vocabulary/token_map.h"
#include "model/text/vocabulary/word_model.h"

namespace lumen::model::text {

// Merges: maps a pair of ids to the id of its concatenation and the merge's rank. Open addressing, filled once.
class PairTable {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: no merge
    TokenId id = -1;
  };
  explicit PairTable(size_t expected = 0);
  // False when the pair exists already (the first merge is kept).
  bool insert(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const {
    const auto a = static_cast<size_t>(left), b = static_cast<size_t>(right);
    if (a >= sides_.size() || b >= sides_.size() || (sides_[a] & kLeft) == 0 || (sides_[b] & kRight) == 0) return {};
    const uint64_t key = key_of(left, right);
    for (size_t at = home(key); slots_[at].key != kEmpty; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return slots_[at].merge;
    }
    return {};
  }
  size_t size() const { return size_; }
  // Applies merges to the symbols of a word until none is left.
  void merge(std::vector<TokenId>& symbols) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint8_t kLeft = 1, kRight = 2;
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t home(uint64_t key) const {
    key *= 0x9e3779b97f4a7c15u;
    key ^= key >> 32;
    return key & mask_;
  }
  void grow();
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  std::vector<Slot> slots_;
  std::vector<uint8_t> sides_;  // by id: whether any pair has it on the left, on the right
  size_t size_ = 0, mask_ = 0;
};

// BPE on bytes.
class BytePairModel : public WordModel {
 public:
  // `bytes[b]` is the token of byte b, -1 when the vocabulary has none. `whole`, if given, is the vocabulary in which a
  // whole word is looked up first (ignore_merges; byte-level alphabet); it and `verbatim`, which marks tokens that
  // words never become, must outlive the model. `unknown`: the token for bytes without one; if absent, such a byte is
  // an Error.
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

// BPE on characters. Characters (and invalid bytes) without a token become byte tokens where the vocabulary has all of
// them, else the unknown token, else an Error.
class CharacterPairModel : public WordModel {
 public:
  struct Options {
    std::array<TokenId, 256> bytes{};  // byte tokens; -1: none
    std::optional<TokenId> unknown;
    bool fuse_unknown = false;         // merge adjacent unknown characters into one token
    bool whole_first = false;          // a word in the vocabulary becomes one token
    std::string continuing, word_end;  // tokens' prefix inside a word, and suffix at its end
  };
  // `tokens`: strings that words may become. `merges` may use ids after the vocabulary for the characters of `more`.
  CharacterPairModel(TokenMap tokens, std::vector<std::pair<char32_t, TokenId>> more, PairTable merges,
                     Options options);

  void encode(std::string_view word, std::vector<TokenId>& out) const override;
  size_t independent(std::string_view text) const override;

 private:
  TokenId symbol(std::string_view character, char32_t c, bool first, bool last) const;
  void missing(std::string_view bytes, std::vector<TokenId>& out, bool* fused) const;

  TokenMap tokens_;
  PairTable merges_;
  Options options_;
  std::vector<TokenId> low_;  // characters below 65536: their token, or -1
  std::unordered_map<char32_t, TokenId> high_;
  std::unordered_map<TokenId, std::string> behind_;  // characters that are no tokens
  // No token contains `mark_` after a character outside of `before_mark_`: a text can be split there.
  char32_t mark_ = 0;
  std::string mark_text_;
  std::unordered_set<char32_t> before_mark_;
};

}  // namespace lumen::model::text
