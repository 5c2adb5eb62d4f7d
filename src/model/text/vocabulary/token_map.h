// Token strings to ids: a flat hash table with open addressing. It stores views; the strings must not move. Untrusted
// vocabularies cannot make it slow: the hash has a random key per process, which affects only time. Proved by
// tests/model/text/tokenizer_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/text/vocabulary/word_model.h"

namespace lumen::model::text {

class TokenMap {
 public:
  using Entry = std::pair<std::string_view, TokenId>;

  explicit TokenMap(size_t expected = 0) { reserve(expected); }
  void reserve(size_t expected);
  // False when the string exists already: the first id is kept.
  bool emplace(std::string_view text, TokenId id);
  // As in the maps of the standard library; end() when the string is missing.
  const Entry* find(std::string_view text) const { return find(text, hash_of(text)); }
  // The ids of many strings at once, -1 for missing ones; memory is prefetched.
  void find_all(std::span<const std::string_view> strings, std::span<TokenId> ids) const;
  // As emplace(strings[i], i) for every non-empty string; returns how many existed already.
  size_t emplace_all(std::span<const std::string> strings);
  bool contains(std::string_view text) const { return find(text) != end(); }
  const Entry* begin() const { return entries_.data(); }  // in insertion order
  const Entry* end() const { return entries_.data() + entries_.size(); }
  size_t size() const { return entries_.size(); }

 private:
  struct Slot {
    uint32_t tag = 0, entry = 0;  // half of the hash; 1 + index, 0: free
  };
  static uint64_t hash_of(std::string_view text);
  bool put(std::string_view text, TokenId id, uint64_t hash);
  const Entry* find(std::string_view text, uint64_t hash) const {
    for (size_t at = hash & mask_; slots_[at].entry != 0; at = (at + 1) & mask_) {
      if (slots_[at].tag != static_cast<uint32_t>(hash >> 32)) continue;
      const Entry& e = entries_[slots_[at].entry - 1];
      if (e.first == text) return &e;
    }
    return end();
  }

  std::vector<Slot> slots_;
  std::vector<Entry> entries_;
  size_t mask_ = 0;
};

}  // namespace lumen::model::text
