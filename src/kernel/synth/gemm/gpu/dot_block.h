// Dots on machines with thread blocks: a block computes a tile of the result from panels in shared memory; if there are
// few tiles, different blocks take parts of K and a second step adds them. Proved by
// tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// A plan, and operands that earlier steps lay out, in this order.
struct BlockDot {
  DotProblem plain;  // before anything is laid out
  DotProblem problem;
  BlockPlan plan;
  std::vector<std::pair<size_t, Prepared>> before;
  double cycles = 0;
};
// Block kernels that compute p, best first; empty if there are none. Scratch is numbered from `scratch` on.
std::vector<BlockDot> choose_block_dots(const DotProblem& p, const machine::Machine& m, bool exact, int scratch);

// All steps of one of them, and their scratch.
void write_block_dot(const graph::Graph& g, const BlockDot& d, const machine::Machine& m, Synthesis& out);

// Adds the step of a plan, the one that adds parts, and their scratch.
void write_block_kernels(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, const machine::Machine& m,
                         Synthesis& out);

}  // namespace lumen::synth
