// Dots on machines with blocks of lanes: a block computes a tile of the result from panels in shared memory; where
// there are few tiles, parts of K go to different blocks and a second step adds them. Proved by
// tests/kernel/dot_block_test.cpp.
#pragma once

#include "kernel/synth/dot_block_plan.h"
#include "kernel/synth/synth.h"

namespace lumen::synth {

// Adds the steps and their scratch.
void write_block_kernels(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m,
                         Synthesis& out);

}  // namespace lumen::synth
