// A set of token ids as a bit mask of 64-bit words, so that whole words can be combined and skipped. Proved by
// tests/model/infer/sample/ranking_test.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/text/tokenizer/tokenizer.h"

namespace lumen::model::infer {

class TokenSet {
 public:
  static constexpr size_t kWord = 64;

  TokenSet() = default;
  // An empty set of ids below `size`.
  explicit TokenSet(size_t size) { resize(size); }

  size_t size() const { return size_; }
  // New ids are not in the set; ids beyond the new size are removed.
  void resize(size_t size) {
    words_.resize((size + kWord - 1) / kWord, 0);
    if (size < size_ && size % kWord != 0) words_.back() &= (uint64_t{1} << size % kWord) - 1;
    size_ = size;
  }
  void add(size_t id) {
    if (id >= size_) resize(id + 1);
    words_[id / kWord] |= uint64_t{1} << id % kWord;
  }
  void remove(size_t id) {
    if (id < size_) words_[id / kWord] &= ~(uint64_t{1} << id % kWord);
  }
  bool has(size_t id) const { return id < size_ && (words_[id / kWord] >> id % kWord & 1) != 0; }
  // Bit i of word w: whether id 64 w + i is in the set. 0 beyond the size.
  uint64_t word(size_t w) const { return w < words_.size() ? words_[w] : 0; }
  size_t count() const {
    size_t n = 0;
    for (const uint64_t w : words_) n += std::popcount(w);
    return n;
  }
  void remove_all(const TokenSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= ~other.word(w);
  }
  // Adds every id below the size that is not in `other`.
  void add_all_outside(const TokenSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] |= ~other.word(w);
    if (size_ % kWord != 0) words_.back() &= (uint64_t{1} << size_ % kWord) - 1;
  }

 private:
  size_t size_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace lumen::model::infer
