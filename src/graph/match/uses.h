// Queries that passes and gradients share: the users of a value, the update that replaces it, the source below its
// views. Proved by tests/graph/fuse_test.cpp.
#pragma once

#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Sums of products; a kernel has at most one.
inline bool is_product(Op op) {
  return op == Op::contract_ || op == Op::contract_gather_ || op == Op::contract_scatter_;
}

// Whether a product with two operands (of contract_gather: with a weight that rows select) sums over the last axis of
// its operand `side`, whose last axis but one is in the result, as in every product W x.
bool reads_columns_of(const Node& product, int side);

// The memory or computed value a load reads: below views and casts out of formats. -1 for splat constants and iotas.
ValueId read_below(const Graph& g, ValueId v);
// Neither view, source of a load, nor input: a node that belongs to exactly one group.
bool is_compute(const Graph& g, ValueId v);
// The input whose storage an update (chain) writes; v itself for anything else.
ValueId storage_of(const Graph& g, ValueId v);
// For every value the update that replaces it, or -1.
std::vector<ValueId> updates_of(const Graph& g);

// For every value the nodes that read it (results count as a user -1).
using Users = std::vector<std::vector<ValueId>>;
Users users_of(const Graph& g);

}  // namespace lumen::graph
