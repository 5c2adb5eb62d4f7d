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

// Two steps; scratch numbers begin at `scratch.size()`. `invariant`: sums are added in an order that suits many rows as
// well as one, in which vectors of codes trade words (lane_order.h) so that fewer sums are scaled.
void write_integer_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                           const machine::Machine& m, bool invariant, Synthesis& out);

}  // namespace lumen::synth
