// Dots of a packed weight in integers: first the activations are quantized to i8 in groups, then rows of the weight
// meet them in the machine's integer dots, corrected by scales and sums per group (factor.h). Proved by
// tests/kernel/dot_integer_test.cpp.
#pragma once

#include "kernel/synth/choose.h"
#include "kernel/synth/factor.h"
#include "kernel/synth/synth.h"

namespace lumen::synth {

// Quantized activations in scratch, row by row: codes i8[padded], scales f32[padded / group], sums f32[padded /
// sum_group] where a sum is a' * (sum of codes) / (lanes of the dot that share it), padding zero.
struct ActivationLayout {
  int64_t rows = 1, columns = 1;
  int64_t padded = 1;  // columns rounded up to whole instructions
  int64_t sum_group = kActivationGroup;
  int64_t groups() const { return padded / kActivationGroup; }
  int64_t sums() const { return padded / sum_group; }
  int64_t code_bytes() const { return rows * padded; }
  int64_t scale_bytes() const { return rows * groups() * 4; }
  int64_t sum_bytes() const { return rows * sums() * 4; }
};

bool integer_possible(const DotProblem& p);

// Two steps; scratch numbers begin at `scratch.size()`.
void write_integer_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                           const machine::Machine& m, Synthesis& out);

}  // namespace lumen::synth
