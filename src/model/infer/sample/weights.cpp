#include "model/infer/sample/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/wider_vectors.h"
#include "model/infer/sample/race.h"

namespace lumen::model::infer {
namespace {

constexpr size_t kGroup = size_t{Race::kGroup};
constexpr size_t kWords = kGroup / TokenSet::kWord;  // of a TokenSet, in a group
static_assert(kGroup % TokenSet::kWord == 0);
constexpr float kLog2E = 1.44269504F;
constexpr float kLowest = float(-kDepth) * kLog2E;
constexpr float kLeastLogit = std::numeric_limits<float>::lowest();
constexpr float kWhole = 12582912.0F;  // 1.5 * 2^23: a sum with it is rounded to a whole number

// The number, or 0. By bits: a conditional may become a branch, which prevents vectorization.
[[gnu::always_inline]] inline float if_true(bool condition, float number) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(number) & -int32_t{condition});
}
[[gnu::always_inline]] inline double if_true(bool condition, double number) {
  return std::bit_cast<double>(std::bit_cast<int64_t>(number) & -int64_t{condition});
}

// 2^y for -126 <= y <= 0, any bits for other y: 2^n times a polynomial of the rest f, |f| <= 1/2, whose relative error
// is below 2.6e-6.
[[gnu::always_inline]] inline float power_of_two(float y) {
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

// The sum of term(i) for i = k, k + kLanes, .. of a group: halves of the group are added to each other until kLanes
// numbers are left, so that the order of additions does not depend on the width of vectors.
template <size_t kLanes, size_t kStride = kLanes, size_t kFirst = 0, typename Term>
[[gnu::always_inline]] inline auto sum_of_lane(const Term& term, size_t k) {
  if constexpr (kStride == kGroup)
    return term(k + kFirst, std::integral_constant<int, kFirst / kLanes>());
  else
    return sum_of_lane<kLanes, 2 * kStride, kFirst>(term, k) +
           sum_of_lane<kLanes, 2 * kStride, kFirst + kStride>(term, k);
}

constexpr size_t kLanes = 16;  // f32 numbers that the widest vector has

template <typename Number>
[[gnu::always_inline]] inline double sum_of_lanes(const Number* lanes) {
  Number half[kLanes / 2];
#pragma omp simd
  for (size_t k = 0; k < kLanes / 2; ++k) half[k] = lanes[k] + lanes[k + kLanes / 2];
  return ((half[0] + half[4]) + (half[1] + half[5])) + ((half[2] + half[6]) + (half[3] + half[7]));
}

constexpr double kExactDepth = 700;  // exp(-kExactDepth) is a normal number

// exp(x) for -kExactDepth <= x <= 0, within 1e-15 relative to it: 2^n times the Taylor polynomial of the rest.
[[gnu::always_inline]] inline double exact_exp(double x) {
  constexpr double kRounding = 0x1.8p52, kPerOctave = 1.4426950408889634, kHigh = 0x1.62e42fee00000p-1,
                   kLow = 0x1.a39ef35793c76p-33;  // log(2) in two parts
  const double t = x * kPerOctave + kRounding, n = t - kRounding;
  const double f = (x - n * kHigh) - n * kLow;
  double p = 1.0 / 6227020800;
  p = p * f + 1.0 / 479001600;
  p = p * f + 1.0 / 39916800;
  p = p * f + 1.0 / 3628800;
  p = p * f + 1.0 / 362880;
  p = p * f + 1.0 / 40320;
  p = p * f + 1.0 / 5040;
  p = p * f + 1.0 / 720;
  p = p * f + 1.0 / 120;
  p = p * f + 1.0 / 24;
  p = p * f + 1.0 / 6;
  p = p * f + 0.5;
  p = p * f + 1;
  p = p * f + 1;
  return std::bit_cast<double>(std::bit_cast<int64_t>(p) + int64_t(std::bit_cast<uint64_t>(t) << 52));
}

struct ExactParts {
  double all, near, moment;
  [[gnu::always_inline]] ExactParts operator+(const ExactParts& o) const {
    return {all + o.all, near + o.near, moment + o.moment};
  }
};

struct Moments {
  double count, sum, squares;
  [[gnu::always_inline]] Moments operator+(const Moments& o) const {
    return {count + o.count, sum + o.sum, squares + o.squares};
  }
};

// What passes add up besides the sum of all weights. Upper ends of ranges and moments matter for typical sampling only.
enum class Adds : uint8_t { nothing, ranges, moments };

// Sums of several groups by lane: adding the lanes up costs as much as a sixth of a group's weights.
struct LaneSums {
  static constexpr int kMostGroups = 8;
  int groups = 0;
  float all[kLanes] = {}, near[kLanes] = {}, far[kLanes] = {}, moment[kLanes] = {};

  template <Adds kAdds>
  [[gnu::always_inline]] void move_to(WeightSums& sums) {
    sums.all += sum_of_lanes(all);
    if constexpr (kAdds != Adds::nothing) {
      sums.near += sum_of_lanes(near);
      sums.far += sum_of_lanes(far);
    }
    if constexpr (kAdds == Adds::moments) sums.moment += sum_of_lanes(moment);
    *this = {};
  }
};

// The larger of two numbers that are not positive. By bits: a comparison may become a mask for all that follows.
[[gnu::always_inline]] inline float nearer_to_zero(float a, float b) {
  const auto of_a = std::bit_cast<uint32_t>(a), of_b = std::bit_cast<uint32_t>(b);
  return std::bit_cast<float>(of_a < of_b ? of_a : of_b);
}

// Weights below exp(-kDepth) count as that. `kIsCut`: logits below h.least, which is not so deep, count as nothing.
template <Adds kAdds, bool kIsCut>
[[gnu::always_inline]] inline void add_group(const float* x, const Weighing& h, float factor, LaneSums& lanes) {
#pragma omp simd
  for (size_t k = 0; k < kLanes; ++k) {
    float all = lanes.all[k], near = lanes.near[k], far = lanes.far[k], moment = lanes.moment[k];
    const auto add = [&](float a) __attribute__((always_inline)) {
      const float y = nearer_to_zero((a - h.best) * factor, kLowest);
      float w = power_of_two(y);
      if constexpr (kIsCut) w = if_true(a >= h.least, w);
      all += w;
      if constexpr (kAdds == Adds::moments) {
        near = ((a >= h.near.low) & (a <= h.near.high)) ? near + w : near;
        far = ((a >= h.far.low) & (a <= h.far.high)) ? far + w : far;
        moment += w * y;
      } else if constexpr (kAdds == Adds::ranges) {
        near = a >= h.near.low ? near + w : near;
        far = a >= h.far.low ? far + w : far;
      }
    };
    static_assert(kGroup == 8 * kLanes);
    add(x[k]);
    add(x[k + kLanes]);
    add(x[k + 2 * kLanes]);
    add(x[k + 3 * kLanes]);
    add(x[k + 4 * kLanes]);
    add(x[k + 5 * kLanes]);
    add(x[k + 6 * kLanes]);
    add(x[k + 7 * kLanes]);
    lanes.all[k] = all;
    if constexpr (kAdds != Adds::nothing) {
      lanes.near[k] = near;
      lanes.far[k] = far;
    }
    if constexpr (kAdds == Adds::moments) lanes.moment[k] = moment;
  }
}

template <Adds kAdds, bool kIsCut>
[[gnu::always_inline]] inline WeightSums add_groups(std::span<const float> logits, std::span<const float> peaks,
                                                    const Weighing& how, float bound, const TokenSet& hidden,
                                                    size_t begin, size_t end) {
  const Weighing h = how;
  const float factor = h.scale * kLog2E;
  WeightSums sums;
  LaneSums lanes;
  for (size_t g = begin; g < end; ++g) {
    if (!(peaks[g] >= bound)) continue;
    float room[kGroup];
    add_group<kAdds, kIsCut>(group_logits(logits, hidden, g, room), h, factor, lanes);
    if (++lanes.groups == LaneSums::kMostGroups) lanes.move_to<kAdds>(sums);
  }
  lanes.move_to<kAdds>(sums);
  sums.moment /= factor;
  if constexpr (kAdds == Adds::nothing) sums.near = sums.far = sums.all;
  return sums;
}

// Bit r of bits[k]: whether number k + r * kLanes is in `outer` but not in `inner`. Adds the number of those in
// `inner`. Bits are added up as f32 numbers, as masks of integers do not become vectors of the full width.
template <bool kTops>
[[gnu::always_inline]] inline void find_in_group(const float* x, LogitRange inner, LogitRange outer, int32_t* inside,
                                                 uint8_t* bits) {
  constexpr int kBits = kGroup / kLanes;
  static_assert(kBits == 8);
  int32_t found[kLanes];
#pragma omp simd
  for (size_t k = 0; k < kLanes; ++k) {
    const float sum = sum_of_lane<kLanes>(
        [&](size_t i, auto row) __attribute__((always_inline)) {
          const float a = x[i];
          constexpr auto kBit = float(1 << row), kCounted = float(1 << kBits) - kBit;
          if constexpr (kTops) {
            return if_true((a >= outer.low) & (a <= outer.high), kBit) +
                   if_true((a >= inner.low) & (a <= inner.high), kCounted);
          } else {
            return if_true(a >= outer.low, kBit) + if_true(a >= inner.low, kCounted);
          }
        },
        k);
    found[k] = int32_t(sum);
    inside[k] += found[k] >> kBits;
  }
  for (size_t k = 0; k < kLanes; ++k) bits[k] = uint8_t(found[k]);
}

}  // namespace

float at_most(double bound) {
  const auto f = float(bound);
  return f > bound ? std::nextafter(f, -kMostLogit) : f;
}

float at_least(double bound) {
  return -at_most(-bound);
}

float least_that_counts(float best, float scale) {
  return best + kLowest / (scale * kLog2E);
}

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
    float room[kGroup], most[kLanes];
    const float* const x = group_logits(logits, hidden, g, room);
    const auto larger = [](float a, float b) { return a > b ? a : b; };
#pragma omp simd
    for (size_t k = 0; k < kLanes; ++k) {
      const float* const y = x + k;
      most[k] = larger(larger(larger(y[0], y[kLanes]), larger(y[2 * kLanes], y[3 * kLanes])),
                       larger(larger(y[4 * kLanes], y[5 * kLanes]), larger(y[6 * kLanes], y[7 * kLanes])));
    }
#pragma omp simd
    for (size_t k = 0; k < kLanes / 2; ++k) most[k] = larger(most[k], most[k + kLanes / 2]);
    out[g] = larger(larger(larger(most[0], most[1]), larger(most[2], most[3])),
                    larger(larger(most[4], most[5]), larger(most[6], most[7])));
  }
}

LUMEN_WIDER_VECTORS
WeightSums sum_weights(std::span<const float> logits, std::span<const float> peaks, const Weighing& how,
                       const TokenSet& hidden, size_t begin, size_t end) {
  LUMEN_CHECK(std::ssize(peaks) == groups_of(logits.size()) && end <= peaks.size());
  const float depth = least_that_counts(how.best, how.scale), bound = std::max(how.least, depth);
  const bool is_cut = how.least > depth, has_tops = how.near.high < kMostLogit || how.far.high < kMostLogit;
  const bool has_ranges = how.near.low > -kMostLogit || how.far.low > -kMostLogit;
  const auto add = [&]<Adds kAdds>() __attribute__((always_inline)) {
    return is_cut ? add_groups<kAdds, true>(logits, peaks, how, bound, hidden, begin, end)
                  : add_groups<kAdds, false>(logits, peaks, how, bound, hidden, begin, end);
  };
  if (how.moments || has_tops) return add.template operator()<Adds::moments>();
  if (has_ranges) return add.template operator()<Adds::ranges>();
  return add.template operator()<Adds::nothing>();
}

LUMEN_WIDER_VECTORS
ExactSums exact_sums(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
                     const ExactWeighing& how) {
  LUMEN_CHECK(std::ssize(peaks) == groups_of(logits.size()));
  const ExactWeighing h = how;
  const double bound = std::max<double>(h.least, std::max(h.best - kExactDepth / h.scale, double{kLeastLogit}));
  const double near_low = h.near.low, near_high = h.near.high;
  ExactSums sums;
  for (size_t g = 0; g < peaks.size(); ++g) {
    if (!(peaks[g] >= bound)) continue;
    float room[kGroup];
    const float* const x = group_logits(logits, hidden, g, room);
    double all[kLanes], near[kLanes], moment[kLanes];
#pragma omp simd
    for (size_t k = 0; k < kLanes; ++k) {
      const ExactParts parts = sum_of_lane<kLanes>(
          [&](size_t i, auto) __attribute__((always_inline)) {
            const double a = x[i], down = (a >= bound ? a : bound) - h.best;
            const double w = if_true(a >= bound, exact_exp(down * h.scale));
            return ExactParts{w, if_true((a >= near_low) & (a <= near_high), w), w * down};
          },
          k);
      all[k] = parts.all;
      near[k] = parts.near;
      moment[k] = parts.moment;
    }
    sums.all += sum_of_lanes(all);
    sums.near += sum_of_lanes(near);
    sums.moment += sum_of_lanes(moment);
  }
  return sums;
}

LUMEN_WIDER_VECTORS
LogitMoments moments_of(std::span<const float> logits, const TokenSet& hidden, float least, double from) {
  LogitMoments out;
  const auto groups = size_t(groups_of(logits.size()));
  const double bound = least > kLeastLogit ? least : kLeastLogit;
  for (size_t g = 0; g < groups; ++g) {
    float room[kGroup];
    const float* const x = group_logits(logits, hidden, g, room);
    double counts[kLanes], sums[kLanes], squares[kLanes];
#pragma omp simd
    for (size_t k = 0; k < kLanes; ++k) {
      const Moments m = sum_of_lane<kLanes>(
          [&](size_t i, auto) __attribute__((always_inline)) {
            const double a = x[i], d = if_true(a >= bound, a - from);
            return Moments{if_true(a >= bound, 1.0), d, d * d};
          },
          k);
      counts[k] = m.count;
      sums[k] = m.sum;
      squares[k] = m.squares;
    }
    out.count += sum_of_lanes(counts);
    out.sum += sum_of_lanes(sums);
    out.squares += sum_of_lanes(squares);
  }
  return out;
}

LUMEN_WIDER_VECTORS
size_t tokens_between(std::span<const float> logits, std::span<const float> peaks, const TokenSet& hidden,
                      LogitRange inner, LogitRange outer, std::vector<Candidate>& out) {
  outer.low = std::max(outer.low, kLeastLogit);
  inner.low = std::max(inner.low, outer.low);
  const bool has_tops = inner.high < kMostLogit || outer.high < kMostLogit;
  size_t n = out.size();
  int32_t inside[kLanes] = {};
  for (size_t g = 0; g < peaks.size(); ++g) {
    if (!(peaks[g] >= outer.low)) continue;
    float room[kGroup];
    const float* const x = group_logits(logits, hidden, g, room);
    uint8_t bits[kLanes];
    if (has_tops)
      find_in_group<true>(x, inner, outer, inside, bits);
    else
      find_in_group<false>(x, inner, outer, inside, bits);
    uint64_t words[kLanes / 8];
    std::memcpy(words, bits, sizeof bits);
    if ((words[0] | words[1]) == 0) continue;
    if (out.size() < n + kGroup) out.resize(2 * n + 4 * kGroup);
    for (size_t half = 0; half < kLanes / 8; ++half) {
      for (uint64_t left = words[half]; left != 0; left &= left - 1) {
        const auto at = size_t(std::countr_zero(left));
        const size_t i = half * 8 + at / 8 + at % 8 * kLanes;
        out[n++] = {text::TokenId(g * kGroup + i), x[i]};
      }
    }
  }
  out.resize(n);
  size_t sum = 0;
  for (const int32_t count : inside) sum += size_t(count);
  return sum;
}

LUMEN_WIDER_VECTORS
void count_steps(std::span<const float> logits, LogitRange in, float top, float each, std::span<uint32_t> counts) {
  constexpr size_t kRun = 64;
  LUMEN_CHECK(counts.size() > 1 && logits.size() % kRun == 0);
  const auto last = float(counts.size() - 2);
  for (size_t first = 0; first < logits.size(); first += kRun) {
    const float* const x = logits.data() + first;
    int32_t step[kRun];
#pragma omp simd
    for (size_t k = 0; k < kRun; ++k) {
      const bool is_in = (x[k] >= in.low) & (x[k] < in.high);
      const float down = (top - x[k]) * each, near = down < last ? down : last;
      step[k] = int32_t(last + 1 - if_true(is_in, last + 1 - (near > 0 ? near : 0)));
    }
    for (size_t k = 0; k < kRun; ++k) ++counts[size_t(step[k])];
  }
}

LUMEN_WIDER_VECTORS
float least_above(std::span<const float> logits, LogitRange in) {
  float least = in.high;
#pragma omp simd reduction(min : least)
  for (size_t i = 0; i < logits.size(); ++i) {
    const float a = logits[i] >= in.low ? logits[i] : in.high;
    least = a < least ? a : least;
  }
  return least;
}

LUMEN_WIDER_VECTORS
void race_bounds(std::span<const float> peaks, const Weighing& how, float ceiling, std::span<float> numbers) {
  const float factor = how.scale * kLog2E, best = how.best, least = how.least;
  constexpr float kLeastPower = -126;
#pragma omp simd
  for (size_t g = 0; g < peaks.size(); ++g) {
    const float x = peaks[g] < ceiling ? peaks[g] : ceiling, y = (x < best ? x - best : 0) * factor;
    const float w = power_of_two(y > kLeastPower ? y : kLeastPower);
    const bool is_in = (peaks[g] >= least) & (peaks[g] > -kMostLogit);
    numbers[g] = is_in ? w * float(kGroup * (1 + 2 * kWeightError)) / numbers[g] : -1;
  }
}

}  // namespace lumen::model::infer
