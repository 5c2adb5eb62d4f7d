// The step after a block dot whose sums were cut along K: adds them in the order of K, and applies the epilogue.
// Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Bytes of the intermediate sums of such a plan: of whole parts (split-K), or of partial tiles (stream-K). 0: none.
int64_t partial_bytes(const DotProblem& p, const BlockPlan& t);

// `scratch`: holds the intermediate sums.
Step write_merge(const graph::Graph& g, DotProblem p, const BlockPlan& t, int scratch);

}  // namespace lumen::synth
