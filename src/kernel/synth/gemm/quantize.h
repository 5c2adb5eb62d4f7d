// Activations to i8 codes for integer dots: x = a' p with p in -127..127, a' = max|x| / 127 over kActivationGroup
// elements. Codes are written in the order in which the weight's come out of memory (lane_order.h). Proved by
// tests/kernel/synth/gemm/dot_integer_test.cpp.
#pragma once

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/order/factor.h"
#include "kernel/synth/order/lane_order.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

// In scratch, row by row: codes i8[codes], scales f32[groups], sums f32[groups] with a sum = a' * (sum of codes). A
// group is d.fine elements; the groups of the units come first, then those of the rest. Lanes without an element are 0.
struct ActivationLayout {
  int64_t rows = 1, columns = 1;
  int64_t fine = kActivationGroup;
  RowOrder order;
  int lanes = 64;  // of a vector of codes
  int64_t codes() const;
  int64_t groups() const;
  int64_t unit_codes() const { return order.unit.vectors.size() * lanes; }
  int64_t unit_groups() const { return order.unit.elements / fine; }
};

// Scratch buffers, by number.
struct ActivationScratch {
  int codes = -1, scales = -1, sums = -1;
};

// Declares the three buffers.
ActivationScratch declare_activations(const ActivationLayout& layout, Synthesis& out);

Step write_quantize(const graph::Graph& g, const DotProblem& p, const ActivationLayout& layout,
                    const ActivationScratch& s, const machine::Machine& m);

}  // namespace lumen::synth
