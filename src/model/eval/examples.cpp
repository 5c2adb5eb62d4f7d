#include "model/eval/examples.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "base/check.h"

namespace lumen::model::eval {

// Initialization of MT19937 by an array with one element (Matsumoto and Nishimura, mt19937ar, 2002).
ExampleDraws::ExampleDraws(uint32_t seed) {
  constexpr uint32_t n = 624;
  const auto mixed = [&](uint32_t i) { return state_[i] ^ (state_[i] >> 30); };
  state_[0] = 19650218;
  for (uint32_t i = 1; i < n; ++i) state_[i] = 1812433253U * mixed(i - 1) + i;
  uint32_t i = 1;
  const auto step = [&](uint32_t factor, uint32_t plus) {
    state_[i] = (state_[i] ^ (mixed(i - 1) * factor)) + plus;
    if (++i >= n) {
      state_[0] = state_[n - 1];
      i = 1;
    }
  };
  for (uint32_t k = 0; k < n; ++k) step(1664525U, seed);
  for (uint32_t k = 1; k < n; ++k) step(1566083941U, 0U - i);
  state_[0] = 0x80000000U;
}

uint32_t ExampleDraws::next() {
  constexpr size_t n = 624, m = 397;
  if (at_ == n) {
    for (size_t k = 0; k < n; ++k) {
      const uint32_t y = (state_[k] & 0x80000000U) | (state_[(k + 1) % n] & 0x7fffffffU);
      state_[k] = state_[(k + m) % n] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfU : 0U);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  return y ^ (y >> 18);
}

size_t ExampleDraws::below(size_t n) {
  const int bits = std::bit_width(n);
  LUMEN_CHECK(n >= 1 && bits <= 32);
  while (true) {
    const size_t drawn = next() >> (32 - bits);
    if (drawn < n) return drawn;
  }
}

std::vector<size_t> ExampleDraws::sample(size_t size, size_t count) {
  LUMEN_CHECK(count <= size);
  // Small sets are drawn from a pool, large ones by rejection.
  size_t pool_size = 21;
  if (count > 5) pool_size += static_cast<size_t>(std::pow(4, std::ceil(std::log(count * 3) / std::log(4.0))));
  std::vector<size_t> out;
  if (size <= pool_size) {
    std::vector<size_t> pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const size_t j = below(size - i);
      out.push_back(pool[j]);
      pool[j] = pool[size - i - 1];
    }
    return out;
  }
  std::set<size_t> taken;
  while (out.size() < count) {
    const size_t j = below(size);
    if (taken.insert(j).second) out.push_back(j);
  }
  return out;
}

}  // namespace lumen::model::eval
