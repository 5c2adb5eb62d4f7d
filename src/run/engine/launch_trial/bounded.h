// Numbers that a kernel may compute in several right ways: a value and how far from it a right kernel may be. What a
// formula makes of them follows operation by operation; constants are those of the self-test (trial/trial.cpp). Proved
// by tests/run/engine/launch_trial/bounded_test.cpp.
#pragma once

#include <span>

#include "number/formula/formula.h"

namespace lumen::run {

// A right result lies within value - error .. value + error. Whole numbers and truth values have an error, too, where
// what they are made of decides it. Infinite: nothing is known.
struct Bounded {
  double value = 0, error = 0;
  bool known() const;  // finite, and near something
};

// A number as a register of the type holds it, or a right kernel's as near as it was.
Bounded rounded(Scalar type, Bounded x);

// The one output of a formula. Operations round once at least, and functions differ from the evaluator's by a few units
// in the last place; what is exact stays so.
Bounded bounded_formula(const Formula& f, std::span<const Bounded> inputs);

}  // namespace lumen::run
