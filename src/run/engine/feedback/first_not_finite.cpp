#include "run/engine/feedback/first_not_finite.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/threads/team.h"

namespace lumen::run {

std::optional<int64_t> first_not_finite(std::span<const float> x, float largest) {
  constexpr int64_t kBlock = 1 << 16, kNone = std::numeric_limits<int64_t>::max();
  const int64_t count = std::ssize(x), blocks = (count + kBlock - 1) / kBlock;
  std::atomic<int64_t> first = kNone;  // block
  parallel_for(0, blocks, {.is_worth = blocks > 4}, [&](int64_t b) {
    // Without the sign, a float's bits are ordered like its magnitude, with infinity and NaN above all numbers.
    uint32_t most = 0;
    const int64_t end = std::min(count, (b + 1) * kBlock);
    for (int64_t i = b * kBlock; i < end; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffU);
    if (most <= std::bit_cast<uint32_t>(largest)) return;
    int64_t least = first;
    while (b < least && !first.compare_exchange_weak(least, b)) continue;
  });
  if (first == kNone) return std::nullopt;
  int64_t at = first * kBlock;
  while (std::abs(x[at]) <= largest) ++at;
  return at;
}

}  // namespace lumen::run
