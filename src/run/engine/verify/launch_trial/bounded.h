// Values that correct kernels may compute differently: a value and an error bound. Bounds propagate through a formula
// operation by operation; the constants are those of the self-test (trial/trial.cpp). Proved by
// tests/run/engine/verify/launch_trial/bounded_test.cpp.
#pragma once

#include <span>

#include "number/formula/formula.h"

namespace lumen::run {

// A correct result is in value - error .. value + error. Integers and booleans have an error, too, if they depend on
// inexact values. Infinite: unknown.
struct Bounded {
  double value = 0, error = 0;
  bool known() const;  // finite, and bounded
};

// A number rounded to a register of the type; the error bound covers correct kernels.
Bounded rounded(Scalar type, Bounded x);

// The one output of a formula. Operations round at least once, and functions differ from the evaluator's by a few units
// in the last place; exact values stay exact.
Bounded bounded_formula(const Formula& f, std::span<const Bounded> inputs);

}  // namespace lumen::run
