// The two passes of a layer's part of a training step as graphs of their own, so that what the first keeps for the
// second may lie elsewhere meanwhile. Proved by tests/graph/passes_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "graph/keep/keep.h"

namespace lumen::graph {

struct Passes {
  Graph forward, backward;
  // Inputs of the backward graph that the forward one writes, as states of the same names, and values of parts before
  // (kCarriedIn) that the backward graph reads.
  struct Kept {
    std::string name;
    Type type;
  };
  std::vector<Kept> kept;
};

// `part`: with gradients that arrive (graph/pass/pass.h), as it is when operands of products are rounded
// (graph/pipeline.h, with_rounded_products); states that its forward part updates are read by that alone. Each graph
// has the part's inputs that it reads; updates go to the pass that computes what they write, results to the backward
// graph. `recompute`: what the backward graph computes again of what the forward one has; `layers`: all of it, so that
// nothing is kept but what parts before have handed on. Masks, positions and codes of parameters are computed again
// always.
Passes split_passes(const Graph& part, const Recompute& recompute);

}  // namespace lumen::graph
