// Scales that are constant over the rows of an operand taken out of a product: sums of codes, times the scales behind
// them. Codes of activations that are held in a format are 16-bit floats exactly, so that matrix instructions multiply
// them without rounding them again; where both operands are codes of one 8-bit float, instructions of that float do.
// Proved by tests/kernel/synth/gemm/row_scales_test.cpp.
#pragma once

#include <optional>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"

namespace lumen::synth {

// Codes that are integers of a byte each, which the machine's matrix instructions multiply as such.
bool are_multiplied_as_integers(const Format& a, const Format& b, const machine::Machine& m);

// The problem with a's row scales behind its sums, and b's where both are then codes that the machine multiplies.
// Nothing where a's format has no such scale, its codes are no 16-bit floats, or b would be rounded more than it is
// beside activations in floats. `both`: b is no more to be rounded than a: its scales come behind the sums, too, or
// nothing.
std::optional<DotProblem> with_row_scales(const DotProblem& p, const machine::Machine& m, bool both = false);

}  // namespace lumen::synth
