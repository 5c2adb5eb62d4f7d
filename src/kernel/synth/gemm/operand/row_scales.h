// Takes scales that are constant over the rows of an operand out of a product: sums of codes are multiplied by the
// scales afterwards. Codes of activations that are held in a format are 16-bit floats exactly, so matrix instructions
// multiply them without rounding them again; if both operands are codes of one 8-bit float, instructions of that float
// do. Scales that change along K, from one run of numbers to the next, multiply the sums of runs: partial sums of
// matrix instructions, which are promoted to f32 sums that way. Proved by tests/kernel/synth/gemm/row_scales_test.cpp
// and run_scales_test.cpp.
#pragma once

#include <optional>

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Whether a processor's dots of vectors, or its matrix unit, multiply bf16.
bool multiplies_short(const machine::Machine& m);

// Whether codes are one-byte integers that the machine's matrix instructions multiply as such.
bool are_multiplied_as_integers(const Format& a, const Format& b, const machine::Machine& m);

// The problem with a's row scales applied after its sums, and b's too if both are then codes that the machine
// multiplies. nullopt if a's format has no such scale, its codes are not 16-bit floats, or b would be rounded more than
// it is with activations in floats. `both`: b must not be rounded more than a, so its scales are applied after the sums
// as well; nullopt if they cannot be.
std::optional<DotProblem> with_row_scales(const DotProblem& p, const machine::Machine& m, bool both = false);

// The problem with codes on both sides that the machine multiplies as such (8-bit floats, integers of a byte), or, in
// large products, as the 16-bit floats that they are: scales shared by rows are applied after the sums, the rest to
// sums of runs. nullopt if codes are not contiguous, scales change within few numbers of K, or none changes along K
// (allowed with `rows_too`).
std::optional<DotProblem> with_run_scales(const DotProblem& p, const machine::Machine& m, bool rows_too = false);

// The problem with both operands of two such formats decoded into scratch as bf16, which loses nothing, and the steps
// that do it, for processors that multiply bf16. nullopt if neighbours cannot be decoded together.
std::optional<DotProblem> lay_short(const graph::Graph& g, const DotProblem& p, const machine::Machine& m,
                                    Synthesis& out);

}  // namespace lumen::synth
