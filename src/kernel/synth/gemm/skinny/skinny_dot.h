// Few rows of a times a packed weight by thread blocks: a step that streams the weight through shared memory
// (skinny_dot_plan.h); each block first rounds or copies the activations there. Proved by
// tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/skinny/skinny_dot_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

Step write_skinny_dot(const graph::Graph& g, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m);

}  // namespace lumen::synth
