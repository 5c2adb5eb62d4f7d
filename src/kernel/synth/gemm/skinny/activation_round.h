// Activations of a streamed product (skinny_mma.h) rounded to a 16-bit float once, by a step before: in the
// order in which lanes hold the weight's elements (fragment_order.h), unit by unit of K and vector by vector of a unit:
// what all rows have of a vector lies together, for each row the lanes that share K beside each other. Where the plan
// wants them, sums over the weight's groups lie in scratch of their own: group by group, all rows; and, of each row,
// what its numbers have been divided by. Proved by tests/kernel/synth/gemm/skinny_mma_test.cpp.
#pragma once

#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

struct RoundedScratch {
  int lines = -1, sums = -1, scales = -1;  // -1: none are wanted
};
RoundedScratch declare_rounded(const SkinnyMmaPlan& t, Synthesis& out);

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                        const RoundedScratch& scratch);

}  // namespace lumen::synth
