// Orders without memory: a permutation of 0 .. size - 1 that is a pure function of its key, by a cipher on numbers of
// as many bits; numbers outside are enciphered again until they are inside. Proved by
// tests/model/data/data_order_test.cpp.
#pragma once

#include <array>
#include <cstdint>

namespace lumen::model::data {

class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, uint64_t epoch);
  uint64_t size() const { return size_; }
  uint64_t at(uint64_t i) const;  // i < size

 private:
  static constexpr int kRounds = 6;
  uint64_t size_;
  int half_ = 1;  // bits of a half
  std::array<uint64_t, kRounds> keys_{};
};

}  // namespace lumen::model::data
