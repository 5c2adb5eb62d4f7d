#include "model/infer/sample/weights.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "model/infer/sample/race.h"

// Uses wider vectors if the processor has them, by the same operations with the same bits. (The resolver of function
// versions runs before a sanitizer's runtime starts.)
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define LUMEN_WIDER_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LUMEN_WIDER_VECTORS
#endif

namespace lumen::model {
namespace {

constexpr size_t kGroup = size_t{Race::kGroup};
constexpr size_t kWords = kGroup / TokenSet::kWord;  // of a TokenSet, in a group
static_assert(kGroup % TokenSet::kWord == 0);
constexpr size_t kHalf = kGroup / 2;
constexpr float kLog2E = 1.44269504F;
constexpr float kLowest = float(-kDepth) * kLog2E;
constexpr float kLeastLogit = std::numeric_limits<float>::lowest();
constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23: a sum with it is rounded to a whole number

// The number, or 0. By bits: a conditional may become a branch, which prevents vectorization.
inline float if_true(bool condition, float number) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(number) & -int32_t{condition});
}
inline double if_true(bool condition, double number) {
  return std::bit_cast<double>(std::bit_cast<int64_t>(number) & -int64_t{condition});
}

// 2^y for -126 <= y <= 0, any bits for other y: 2^n times a polynomial of the rest f, |f| <= 1/2, whose relative error
// is below 2.6e-6.
inline float power_of_two(float y) {
  const float t = y + kWhole;
  const float f = y - (t - kWhole);
  float p = 0.00957009010F;
  p = p * f + 0.0559178591F;
  p = p * f + 0.240247458F;
  p = p * f + 0.693121791F;
  p = p * f + 0.999999285F;
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + int32_t(std::bit_cast<uint32_t>(t) << 23));
}

inline const float* group_logits(std::span<const float> logits, const TokenSet& hidden, size_t group, float* room) {
  const size_t first = group * kGroup, count = std::min(kGroup, logits.size() - first);
  const float* const in = logits.data() + first;
  uint64_t any = 0;
  for (size_t w = 0; w < kWords; ++w) any |= hidden.word(group * kWords + w);
  if (any == 0 && count == kGroup) return in;
  std::copy_n(in, count, room);
  std::fill(room + count, room + kGroup, -kMostLogit);
  for (size_t w = 0; w < kWords; ++w) {
    const uint64_t bits = hidden.word(group * kWords + w);
    float* const to = room + w * TokenSet::kWord;
    if (bits == ~uint64_t{0}) {
      std::fill(to, to + TokenSet::kWord, -kMostLogit);
      continue;
    }
    for (uint64_t left = bits; left != 0; left &= left - 1) to[std::countr_zero(left)] = -kMostLogit;
  }
  return room;
}

// Half of the numbers are added to the other half until few are left, so that the order of additions does not depend on
// the width of vectors.
inline double sum_of_half(float* half) {
#pragma omp simd
  for (size_t k = 0; k < kHalf / 2; ++k) half[k] += half[k + kHalf / 2];
#pragma omp simd
  for (size_t k = 0; k < kHalf / 4; ++k) half[k] += half[k + kHalf / 4];
#pragma omp simd
  for (size_t k = 0; k < kHalf / 8; ++k) half[k] += half[k + kHalf / 8];
  return ((half[0] + half[4]) + (half[1] + half[5])) + ((half[2] + half[6]) + (half[3] + half[7]));
}

}  // namespace

int64_t groups_of(size_t vocabulary) {
  return int64_t((vocabulary + kGroup - 1) / kGroup);
}

const float* logits_of_group(std::span<const float> logits, const TokenSet& hidden, size_t group, float* room) {
  return group_logits(logits, hidden, group, room);
}

LUMEN_WIDER_VECTORS
void peaks_of(std::span<const float> logits, const TokenSet& hidden, std::span<float> out) {
  LUMEN_CHECK(std::ssize(out) == groups_of(logits.size()));
  for (size_t g = 0; g < out.size(); ++g) {
    float room[kGroup], most[kHalf];
    const float* const x = group_logits(logits, hidden, g, room);
#pragma omp simd
    for (size_t k = 0; k < kHalf; ++k) most[k] = x[k] > x[k + kHalf] ? x[k] : x[k + kHalf];
#pragma omp simd
    for (size_t k = 0; k < kHalf / 2; ++k) most[k] = most[k] > most[k + kHalf / 2] ? most[k] : most[k + kHalf / 2];
#pragma omp simd
    for (size_t k = 0; k < kHalf / 4; ++k) most[k] = most[k] > most[k + kHalf / 4] ? most[k] : most[k + kHalf / 4];
    float peak = most[0];
    for (size_t k = 1; k < kHalf / 4; ++k) peak = most[k] > peak ? most[k] : peak;
    out[g] = peak;
  }
}

LUMEN_WIDER_VECTORS
WeightSums sum_weights(std::span<const float> logits, std::span<const float> peaks, const Weighing& how,
                       const TokenSet& hidden, size_t begin, size_t end) {
  LUMEN_CHECK(std::ssize(peaks) == groups_of(logits.size()) && end <= peaks.size());
  const Weighing h = how;
  const float factor = h.scale * kLog2E, bound = std::max(h.least, h.best + kLowest / factor);
  const bool has_tops = h.near.high < kMostLogit || h.far.high < kMostLogit;
  const bool has_ranges = has_tops || h.near.low > -kMostLogit || h.far.low > -kMostLogit;
  WeightSums sums;
  for (size_t g = begin; g < end; ++g) {
    if (!(peaks[g] >= bound)) continue;
    float room[kGroup], weights[kGroup], all[kHalf], near[kHalf], far[kHalf];
    const float* const x = group_logits(logits, hidden, g, room);
#pragma omp simd
    for (size_t k = 0; k < kGroup; ++k) weights[k] = if_true(x[k] >= bound, power_of_two((x[k] - h.best) * factor));
#pragma omp simd
    for (size_t k = 0; k < kHalf; ++k) all[k] = weights[k] + weights[k + kHalf];
    const double sum = sum_of_half(all);
    sums.all += sum;
    if (!has_ranges) {
      sums.near += sum;
      sums.far += sum;
    } else if (has_tops) {
#pragma omp simd
      for (size_t k = 0; k < kHalf; ++k) {
        const float a = x[k], b = x[k + kHalf], of_a = weights[k], of_b = weights[k + kHalf];
        near[k] = if_true((a >= h.near.low) & (a <= h.near.high), of_a) +
                  if_true((b >= h.near.low) & (b <= h.near.high), of_b);
        far[k] =
            if_true((a >= h.far.low) & (a <= h.far.high), of_a) + if_true((b >= h.far.low) & (b <= h.far.high), of_b);
      }
    } else {
#pragma omp simd
      for (size_t k = 0; k < kHalf; ++k) {
        const float a = x[k], b = x[k + kHalf], of_a = weights[k], of_b = weights[k + kHalf];
        near[k] = if_true(a >= h.near.low, of_a) + if_true(b >= h.near.low, of_b);
        far[k] = if_true(a >= h.far.low, of_a) + if_true(b >= h.far.low, of_b);
      }
    }
    if (has_ranges) {
      sums.near += sum_of_half(near);
      sums.far += sum_of_half(far);
    }
    if (!h.moments) continue;
    float moments[kHalf];
#pragma omp simd
    for (size_t k = 0; k < kHalf; ++k) {
      const float a = x[k] - h.best, b = x[k + kHalf] - h.best;
      moments[k] = weights[k] * if_true(a > kLeastLogit, a) + weights[k + kHalf] * if_true(b > kLeastLogit, b);
    }
    sums.moment += sum_of_half(moments);
  }
  return sums;
}

LUMEN_WIDER_VECTORS
LogitMoments moments_of(std::span<const float> logits, const TokenSet& hidden, float least, double from) {
  LogitMoments out;
  const auto groups = size_t(groups_of(logits.size()));
  const float bound = least > kLeastLogit ? least : kLeastLogit;
  for (size_t g = 0; g < groups; ++g) {
    float room[kGroup];
    const float* const x = group_logits(logits, hidden, g, room);
    double counts[kHalf], sums[kHalf], squares[kHalf];
#pragma omp simd
    for (size_t k = 0; k < kHalf; ++k) {
      const bool has_a = x[k] >= bound, has_b = x[k + kHalf] >= bound;
      const double a = if_true(has_a, x[k] - from), b = if_true(has_b, x[k + kHalf] - from);
      counts[k] = if_true(has_a, 1.0) + if_true(has_b, 1.0);
      sums[k] = a + b;
      squares[k] = a * a + b * b;
    }
    for (size_t half = kHalf / 2; half >= 4; half /= 2) {
#pragma omp simd
      for (size_t k = 0; k < half; ++k) {
        counts[k] += counts[k + half];
        sums[k] += sums[k + half];
        squares[k] += squares[k + half];
      }
    }
    for (size_t k = 0; k < 4; ++k) {
      out.count += counts[k];
      out.sum += sums[k];
      out.squares += squares[k];
    }
  }
  return out;
}

}  // namespace lumen::model
