// Loops of a fit that find the largest magnitude of the values to encode. Without NaN the order of values does not
// matter, so lanes may share the work: each finds the maximum of its part, as bits. Bits of magnitudes are ordered like
// the numbers, with NaN above all. Proved by tests/kernel/synth/encode_lanes_test.cpp.
#pragma once

#include <cstdint>

#include "number/format/routine.h"

namespace lumen::synth {

inline constexpr int64_t kInfinityBits = 0x7f800000;  // f32; greater magnitudes are NaN

struct MagnitudeLoop {
  int accumulator = 0;                 // a variable
  const RoutineExpr* value = nullptr;  // abs of an expression of x[counter] and constants
};

// Whether a statement is such a loop, from the first value on.
bool is_magnitude_loop(const RoutineStmt& s);
// The only loop of a routine, if it is such a loop over all of `count` values, and nothing else reads the values; null:
// lanes share nothing.
inline constexpr int64_t kAllValues = -1;  // len(x)
const RoutineStmt* shared_loop(const Routine& fit, int64_t count);
MagnitudeLoop magnitude_loop(const RoutineStmt& s);

}  // namespace lumen::synth
