// The smaller and the larger of two floats: as IEEE 754 of 2008 has it, where a signaling NaN comes out quiet
// (generations before 12, whose MODE.IEEE compiled kernels set), and as `_num`, where a number always wins.
#pragma once

#include "tests/amd/execute/lanes.h"

namespace lumen::amd {

inline double wide(Half x) {
  return static_cast<double>(x.value());
}

template <class F>
bool signaling(F x) {
  if constexpr (std::is_same_v<F, Half>) {
    return (x.bits & 0x7c00) == 0x7c00 && (x.bits & 0x1ff) != 0 && !(x.bits & 0x200);
  } else if constexpr (sizeof(F) == 4) {
    return x != x && !(std::bit_cast<uint32_t>(x) >> 22 & 1);
  } else {
    return x != x && !(std::bit_cast<uint64_t>(x) >> 51 & 1);
  }
}
template <class F>
F quiet(F x) {
  if constexpr (std::is_same_v<F, Half>) {
    return {static_cast<uint16_t>(x.bits | 0x200)};
  } else if constexpr (sizeof(F) == 4) {
    return std::bit_cast<F>(std::bit_cast<uint32_t>(x) | 1U << 22);
  } else {
    return std::bit_cast<F>(std::bit_cast<uint64_t>(x) | uint64_t{1} << 51);
  }
}

// `larger`: the larger one; -0 is smaller than 0.
template <class F>
F number_of_two(F a, F b, bool larger) {
  if constexpr (std::is_same_v<F, Half>) {
    return {half_bits(number_of_two(wide(a), wide(b), larger))};
  } else {
    if (a != a) return b;
    if (b != b) return a;
    const bool first = a == 0 && b == 0 ? std::signbit(a) != larger : (a < b) != larger;
    return first ? a : b;
  }
}
template <class F>
F least_number(F a, F b) {
  return number_of_two(a, b, false);
}
template <class F>
F most_number(F a, F b) {
  return number_of_two(a, b, true);
}
template <class F>
F least(F a, F b) {
  return signaling(a) ? quiet(a) : signaling(b) ? quiet(b) : number_of_two(a, b, false);
}
template <class F>
F most(F a, F b) {
  return signaling(a) ? quiet(a) : signaling(b) ? quiet(b) : number_of_two(a, b, true);
}

// The middle one of three; where one is a NaN, the smallest.
template <class F>
F middle_number(F a, F b, F c) {
  return most_number(least_number(a, b), least_number(most_number(a, b), c));
}
template <class F>
bool any_nan(F a, F b, F c) {
  if constexpr (std::is_same_v<F, Half>) {
    return any_nan(wide(a), wide(b), wide(c));
  } else {
    return a != a || b != b || c != c;
  }
}

}  // namespace lumen::amd
