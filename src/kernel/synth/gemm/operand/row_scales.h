// Scales that are constant over the rows of an operand taken out of a product: sums of codes, times the scales behind
// them. Codes of activations that are held in a format are 16-bit floats exactly, so that matrix instructions multiply
// them without rounding them again; where both operands are codes of one 8-bit float, instructions of that float do.
// Scales that change along K, from one run of numbers to the next, multiply the sums of runs: partial sums of matrix
// instructions, which are promoted to f32 sums that way.
// Proved by tests/kernel/synth/gemm/row_scales_test.cpp and run_scales_test.cpp.
#pragma once

#include <optional>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Whether dots of vectors, or the matrix unit, of a processor multiply bf16.
bool multiplies_short(const machine::Machine& m);

// Codes that are integers of a byte each, which the machine's matrix instructions multiply as such.
bool are_multiplied_as_integers(const Format& a, const Format& b, const machine::Machine& m);

// The problem with a's row scales behind its sums, and b's where both are then codes that the machine multiplies.
// Nothing where a's format has no such scale, its codes are no 16-bit floats, or b would be rounded more than it is
// beside activations in floats. `both`: b is no more to be rounded than a: its scales come behind the sums, too, or
// nothing.
std::optional<DotProblem> with_row_scales(const DotProblem& p, const machine::Machine& m, bool both = false);

// The problem with codes on both sides that the machine multiplies as such (8-bit floats, integers of a byte), or, in
// large products, as the 16-bit floats that they are: what rows share of their scales behind the sums, the rest at sums
// of runs. Nothing where codes do not lie beside each other, scales change within few numbers of K, or none does along
// K (`rows_too`: that is no reason).
std::optional<DotProblem> with_run_scales(const DotProblem& p, const machine::Machine& m, bool rows_too = false);

// The problem with what both operands of two such formats decode to laid out in scratch as bf16, which loses nothing,
// and the steps that do it, for processors that multiply that. Nothing where neighbours cannot be decoded together.
std::optional<DotProblem> lay_short(const graph::Graph& g, const DotProblem& p, const machine::Machine& m,
                                    Synthesis& out);

}  // namespace lumen::synth
