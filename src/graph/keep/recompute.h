// Activation recomputation of a training step: values between the borders of the forward part are computed again rather
// than kept. A border is a value on which everything after it depends (the residual stream between layers). Borders are
// found by the graph's structure alone. Proved by tests/graph/recompute_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A stretch of the forward part: nodes after one border up to the next.
struct Stretch {
  ValueId begin = 0, end = 0;  // begin <= v < end
  double work = 0;             // multiplications of the values that would be recomputed
  int64_t bytes = 0;           // of values inside that gradients read, without borders
};

// The stretches of a graph with numeric extents and one loss, in order; empty if it has no borders. Stretches of equal
// structure that alternate are joined, so that each repetition (a layer) is one.
std::vector<Stretch> find_stretches(const Graph& g, ValueId loss);

// The values inside the chosen stretches that gradients read are recomputed before their first backward reader. Bits
// stay.
Graph recompute_stretches(const Graph& g, ValueId loss, const std::vector<Stretch>& chosen);

// Values that gradients read are recomputed where that takes only elementwise operations on values that are kept
// anyway: norms from the residual stream and their sums, products of gates. Bits stay.
Graph recompute_maps(const Graph& g, ValueId loss);

}  // namespace lumen::graph
