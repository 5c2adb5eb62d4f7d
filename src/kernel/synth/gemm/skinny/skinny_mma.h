// A few rows of a times a weight by matrix instructions, while the weight streams through the shared memory of blocks
// (skinny_mma_plan.h), after a step that rounds a (activation_round.h). Proved by
// tests/kernel/synth/gemm/skinny_mma_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

void write_skinny_mma(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                      Synthesis& out);

}  // namespace lumen::synth
