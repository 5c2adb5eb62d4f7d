// Dots of a packed weight in integers: first the activations are quantized to i8 in groups (operand_step.h), then the
// machine's integer dots multiply them with rows of the weight, corrected by scales and sums per group (factor.h).
// Proved by tests/kernel/synth/gemm/dot_integer_test.cpp.
#pragma once

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/order/factor.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

bool integer_possible(const DotProblem& p);
// The same if a is stored in codes that such dots take unchanged (operand/coded_rows.h).
bool keeps_codes(const DotProblem& p);

// Two steps; scratch numbers begin at `scratch.size()`.
void write_integer_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                           const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
