// Division that rounds up, of numbers that are not negative.
#pragma once

#include <cstdint>

namespace lumen::synth {

inline int64_t ceil_div(int64_t x, int64_t y) {
  return (x + y - 1) / y;
}
inline int64_t round_up(int64_t x, int64_t unit) {
  return ceil_div(x, unit) * unit;
}

}  // namespace lumen::synth
