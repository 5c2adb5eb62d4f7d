// The dot kernel for few rows of `a` (decoding a token): vectors along k, rows of `b` read once in place, packed ones
// unpacked in registers, sums reduced at the end. Proved by tests/kernel/synth/gemm/dot_rows_test.cpp.
#pragma once

#include "kernel/machine/machine.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

Step write_rows_kernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m);

}  // namespace lumen::synth
