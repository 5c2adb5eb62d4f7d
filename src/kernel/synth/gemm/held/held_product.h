// The kernels of a plan with a held weight: reordering of activations, the product, and the sum of parts of K. Proved
// by tests/kernel/synth/gemm/held/held_product_test.cpp.
#pragma once

#include "kernel/synth/gemm/held/held_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

void write_held(const graph::Graph& g, const DotProblem& p, const HeldPlan& t, const machine::Machine& m,
                Synthesis& out);

}  // namespace lumen::synth
