// The two passes of a layer's part of a training step as graphs of their own, so that the values kept from the first
// for the second may be stored elsewhere meanwhile. Proved by tests/graph/passes_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"
#include "graph/keep/keep.h"

namespace lumen::graph {

struct Passes {
  Graph forward, backward;
  // Inputs of the backward graph that the forward one writes, as states of the same names, and values of earlier parts
  // (kCarriedIn) that the backward graph reads.
  struct Kept {
    std::string name;
    Type type;
  };
  std::vector<Kept> kept;
};

// `part`: has arriving gradients (graph/pass/pass.h), after operands of products are rounded (graph/pipeline.h,
// with_rounded_products); only its forward part reads the states that it updates. Each graph has the inputs of the part
// that it reads; an update is in the pass that computes its value, results are in the backward graph. `recompute`: the
// values of the forward graph that the backward graph recomputes; `layers`: all, so that only values from earlier parts
// are kept. Masks, positions and codes of parameters are always recomputed.
Passes split_passes(const Graph& part, const Recompute& recompute);

}  // namespace lumen::graph
