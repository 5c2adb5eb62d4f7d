// Dots with many rows of activations through the machine's dot instructions: a step that rounds the activations, then
// the kernel, which fills a panel of b per task and stage of K and runs register tiles over it. Proved by
// tests/kernel/synth/gemm/dot_matrix_test.cpp.
#pragma once

#include "kernel/synth/gemm/cpu/dot_matrix_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// Adds both steps and their scratch.
void write_matrix_kernels(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                          Synthesis& out);

}  // namespace lumen::synth
