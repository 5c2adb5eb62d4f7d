// The inside of fuse: what arrange, attend and partition hand to each other. Other passes use its questions about uses
// and updates.
#pragma once

#include <optional>
#include <vector>

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

// Sums of products: what a kernel has one of.
inline bool is_product(Op op) {
  return op == Op::contract_ || op == Op::contract_gather_ || op == Op::contract_scatter_;
}

// The memory or computed value a load reads: below views and casts out of formats. -1 for splat constants and iotas.
ValueId read_below(const Graph& g, ValueId v);
// Neither view, source of a load, nor input: what belongs to exactly one group.
bool is_compute(const Graph& g, ValueId v);
// For every value the update that replaces it, or -1.
std::vector<ValueId> updates_of(const Graph& g);

// For every value the nodes that read it (results count as a user -1).
using Users = std::vector<std::vector<ValueId>>;
Users users_of(const Graph& g);

// What a set of map, random, reduce and update nodes would be as one group; nothing when the contract forbids it.
struct Form {
  KernelShape shape = KernelShape::map;
  ValueId root = -1;
};
std::optional<Form> row_form(const Graph& g, const Users& users, const std::vector<ValueId>& nodes);

}  // namespace lumen::graph
