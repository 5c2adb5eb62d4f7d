// Few rows of a beside a packed weight by blocks of lanes: a step that streams the weight through shared memory
// (skinny_dot_plan.h), with activations rounded or copied there first by each block. Proved by
// tests/kernel/synth/gemm/skinny_dot_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/skinny/skinny_dot_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

Step write_skinny_dot(const graph::Graph& g, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m);

}  // namespace lumen::synth
