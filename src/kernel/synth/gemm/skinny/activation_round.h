// Activations of a streamed product (skinny_mma.h), rounded to a 16-bit float once by an earlier step, in the order in
// which lanes hold the weight's elements (fragment_order.h): unit by unit of K, vector by vector of a unit, row by row,
// and for each row the lanes that share K. If the plan needs them, sums over the weight's groups have their own
// scratch, group by group, then row by row; so has each row's divisor. Proved by
// tests/kernel/synth/gemm/skinny_mma_test.cpp.
#pragma once

#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

struct RoundedScratch {
  int lines = -1, sums = -1, scales = -1;  // -1: not wanted
};
RoundedScratch declare_rounded(const SkinnyMmaPlan& t, Synthesis& out);

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                        const RoundedScratch& scratch);

}  // namespace lumen::synth
