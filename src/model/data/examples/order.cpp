#include "model/data/examples/order.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace lumen::model::data {
namespace {

// The finalizer of SplitMix64.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch) : size_(size) {
  const int bits = size <= 1 ? 1 : std::bit_width(size - 1);
  half_ = std::max(1, (bits + 1) / 2);
  uint64_t key = mix(mix(seed) ^ epoch);
  for (uint64_t& k : keys_) k = key = mix(key);
}

uint64_t Permutation::at(uint64_t i) const {
  LUMEN_CHECK(i < size_);
  const uint64_t mask = (uint64_t{1} << half_) - 1;
  do {
    uint64_t left = i >> half_, right = i & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    i = left << half_ | right;
  } while (i >= size_);
  return i;
}

}  // namespace lumen::model::data
