// What of a training step is computed again rather than kept: values between the borders of the forward part, through
// each of which everything flows that comes after (the residual stream between layers). Found by the graph's shape
// alone. Proved by tests/graph/recompute_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// A stretch of the forward part: nodes after one border up to the next.
struct Stretch {
  ValueId begin = 0, end = 0;  // begin <= v < end
  double work = 0;             // multiplications of what would be computed again
  int64_t bytes = 0;           // of values inside that gradients read, borders aside
};

// Those of a graph with numeric extents and one loss, in order; none where no values flow through borders. Stretches of
// equal structure that alternate are joined, so that what repeats (a layer) is one.
std::vector<Stretch> find_stretches(const Graph& g, ValueId loss);

// The values inside the chosen stretches that gradients read are computed again where they are first read. Bits stay.
Graph recompute_stretches(const Graph& g, ValueId loss, const std::vector<Stretch>& chosen);

// Values that gradients read are computed again where that takes elementwise work alone on what is kept anyway: norms
// from the residual stream and their sums, products of gates. Bits stay.
Graph recompute_maps(const Graph& g, ValueId loss);

}  // namespace lumen::graph
