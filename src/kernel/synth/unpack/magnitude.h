// Loops of a fit that find the largest magnitude of what is encoded. While all values are numbers the order in which
// they are looked at tells nothing, so that lanes may share the work: each finds the largest of its part, as bits,
// which of magnitudes have the order of the numbers they are, with NaN above all. Proved by
// tests/kernel/synth/encode_lanes_test.cpp.
#pragma once

#include <cstdint>

#include "number/format/routine.h"

namespace lumen::synth {

inline constexpr int64_t kInfinityBits = 0x7f800000;  // f32; magnitudes with more bits are no numbers

struct MagnitudeLoop {
  int accumulator = 0;                 // a variable
  const RoutineExpr* value = nullptr;  // abs of an expression of x[counter] and constants
};

// Whether a statement is such a loop, from the first value on.
bool is_magnitude_loop(const RoutineStmt& s);
// The only loop of a routine, where it is one over all of `count` values, and nothing else reads what is encoded; null:
// lanes share nothing.
inline constexpr int64_t kAllValues = -1;  // len(x)
const RoutineStmt* shared_loop(const Routine& fit, int64_t count);
MagnitudeLoop magnitude_loop(const RoutineStmt& s);

}  // namespace lumen::synth
