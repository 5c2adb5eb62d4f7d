// The inside of fuse: what arrange and partition hand to each other.
#pragma once

#include <optional>
#include <vector>

#include "graph/match/uses.h"
#include "graph/pass/pipeline.h"

namespace lumen::graph {

// Nodes between two uses of a value, about two layers: more, and it is worth computing twice rather than keeping.
inline constexpr ValueId kFar = 200;

// Parameters rounded for products are rounded again for those far behind.
Graph repeat_casts(const Graph& g);

// Rebuilds the graph so that the group contract's rules on loads hold: dead nodes go, loads no kernel can read are
// copied by identity maps, masks and the like are cloned into their users, iotas vary along one axis. Numeric dims, no
// calls.
Graph arrange(const Graph& g);

// What a set of map, random, reduce and update nodes would be as one group; nothing when the contract forbids it.
struct Form {
  KernelShape shape = KernelShape::map;
  ValueId root = -1;
};
std::optional<Form> row_form(const Graph& g, const Users& users, const std::vector<ValueId>& nodes);

}  // namespace lumen::graph
