// Few rows of a beside a packed weight by blocks of lanes: a step that streams the weight through shared memory
// (dot_stream_plan.h), with activations rounded or copied there first by each block. Proved by
// tests/kernel/synth/gemm/dot_stream_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/skinny/dot_stream_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

Step write_stream_kernel(const graph::Graph& g, const DotProblem& p, const StreamPlan& t, const machine::Machine& m);

}  // namespace lumen::synth
