// Layers of a model keep their caches in one state, one layer behind the other. A group that reads or writes one layer
// of it means the same in every layer, but for where that layer begins: seen as a state of one layer, groups of all
// layers are equal, and have one kernel. Proved by tests/graph/fuse/layer_view_test.cpp.
#pragma once

#include <map>

#include "graph/fuse/plan.h"

namespace lumen::graph {

struct LayerView {
  std::map<ValueId, Node> nodes;       // of the group, as they are with states of one layer
  std::map<ValueId, int64_t> offsets;  // of values in memory: bytes to where the layer begins
};

// Nothing to see where a group reads or writes no single layer, or one that does not lie in one piece, at a place as
// aligned as memory is.
LayerView layer_view(const Graph& g, const Group& group);

}  // namespace lumen::graph
