// A few rows of a beside a weight by matrix instructions, while the weight streams through the shared memory of blocks
// (dot_stream_matrix_plan.h), behind a step that rounds a (stream_round.h). Proved by
// tests/kernel/synth/gemm/dot_stream_matrix_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/skinny/dot_stream_matrix_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

void write_matrix_stream_kernels(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t,
                                 const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
