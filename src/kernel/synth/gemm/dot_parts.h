// Split-K for sums much longer than the result is wide: each part of K is a product with its own result in scratch, so
// that threads share the work without reading operands several times, and a later step adds the parts in order. Proved
// by tests/kernel/synth/gemm/cpu/dot_parts_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// p with the slowest index of K cut into `parts` equal parts, each an outer index; results follow each other in scratch
// number `scratch`. `parts` divides that index.
DotProblem in_parts(const DotProblem& p, int64_t parts, int scratch);

// Adds the parts and applies p's epilogue.
Step write_sum_of_parts(const graph::Graph& g, DotProblem p, int64_t parts, int scratch, int lanes);

}  // namespace lumen::synth
