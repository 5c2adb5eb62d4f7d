// The tiled dot kernel: register tiles of rows x vectors, panels of packed operands in private memory, sums in
// registers (or in a private tile if K is cut into stages). In f32, or in 32-bit integers. Proved by
// tests/kernel/synth/gemm/dot_tile_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// One step, or two where a is laid out in scratch first.
void write_tile_kernels(const graph::Graph& g, const DotProblem& p, const TilePlan& t, Synthesis& out);

}  // namespace lumen::synth
