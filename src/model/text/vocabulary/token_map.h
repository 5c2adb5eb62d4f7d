// Strings of tokens to ids: a flat table with open addressing. The strings lie elsewhere and stay where they are.
// Hostile vocabularies cannot make it slow: the hash has a key that differs from run to run, and nothing depends on it
// but time. Proved by tests/model/text/tokenizer_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/text/vocabulary/word_model.h"

namespace lumen::model {

class TokenMap {
 public:
  using Entry = std::pair<std::string_view, TokenId>;

  explicit TokenMap(size_t expected = 0) { reserve(expected); }
  void reserve(size_t expected);
  // False when the text is there already: the first one counts.
  bool emplace(std::string_view text, TokenId id);
  // As in the maps of the standard library; end() when the text is not there.
  const Entry* find(std::string_view text) const { return find(text, hash_of(text)); }
  // The ids of many strings at once, -1 where there is none: memory is asked for ahead of the questions.
  void find_all(std::span<const std::string_view> strings, std::span<TokenId> ids) const;
  // The same as emplace(strings[i], i) for every string that is not empty; how many of them were there already.
  size_t emplace_all(std::span<const std::string> strings);
  bool contains(std::string_view text) const { return find(text) != end(); }
  const Entry* begin() const { return entries_.data(); }  // in the order in which they came
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

}  // namespace lumen::model
