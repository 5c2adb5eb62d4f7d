// Activations of a streamed product (dot_stream_matrix.h) rounded to a 16-bit float once, by a step before: in the
// order in which lanes hold the weight's elements (fragment_order.h), unit by unit of K and piece by piece of a unit:
// what all rows have of a piece lies together, for each row the lanes that share K beside each other. Where the plan
// wants them, sums over the weight's groups lie in scratch of their own: group by group, all rows; and, of each row,
// what its numbers have been divided by. Proved by tests/kernel/synth/gemm/dot_stream_matrix_test.cpp.
#pragma once

#include "kernel/synth/gemm/skinny/dot_stream_matrix_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

struct RoundedScratch {
  int lines = -1, sums = -1, scales = -1;  // -1: none are wanted
};
RoundedScratch declare_rounded(const MatrixStreamPlan& t, Synthesis& out);

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t,
                        const machine::Machine& m, const RoundedScratch& scratch);

}  // namespace lumen::synth
