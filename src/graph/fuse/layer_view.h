// The layers of a model keep their caches in one state, one layer after another. A group that reads or writes one layer
// of it is the same in every layer except for the offset of that layer. Rewritten to a state of one layer, the groups
// of all layers are equal and share one kernel. Proved by tests/graph/fuse/layer_view_test.cpp.
#pragma once

#include <map>

#include "graph/fuse/plan.h"

namespace lumen::graph {

struct LayerView {
  std::map<ValueId, Node> nodes;       // of the group, rewritten to states of one layer
  std::map<ValueId, int64_t> offsets;  // of values in memory: bytes to the beginning of the layer
};

// Empty if a group reads or writes no single layer, or a layer that is not contiguous or not aligned like an
// allocation.
LayerView layer_view(const Graph& g, const Group& group);

}  // namespace lumen::graph
