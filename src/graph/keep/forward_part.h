// The forward part of a training step: the nodes the loss depends on, and those computed with it only to be encoded for
// the gradients. Proved by tests/graph/recompute_test.cpp.
#pragma once

#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct ForwardPart {
  std::vector<bool> forward;       // the loss depends on it; or it depends only on the forward part, and is encoded
  std::vector<bool> of_data;       // depends on an input that is no parameter
  std::vector<bool> of_parameter;  // depends on a parameter
  std::vector<ValueId> base;       // below views, and below decoding: the value in memory
  ValueId end = 0;                 // the first node that is not of the forward part and depends on it

  bool active(ValueId v) const { return forward[v] && of_data[v] && of_parameter[v]; }
  // A node of the backward pass or of an update.
  bool is_behind(ValueId v) const { return v >= end && !forward[v]; }
};

// `loss`: a number. Numeric extents. In a layer's part of a step (graph/pass/pass.h) the forward part ends
// before the first node that reads an arriving gradient, and there is no loss.
ForwardPart forward_part(const Graph& g, ValueId loss);

}  // namespace lumen::graph
