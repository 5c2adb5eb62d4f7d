// The nodes from a value to its largest or smallest number, for kernels that compute the value and can find the extreme
// on the way. Proved by tests/graph/pass/group_codes.txt and group_product_codes.txt.
#pragma once

#include "graph/fuse/partition.h"

namespace lumen::graph {

// The chain that begins with u, a user of a value of this shape: an optional map of it, then one or two reductions to a
// single number, with no other readers. Empty if there is no such chain.
std::vector<ValueId> extreme_chain(const Partition& p, ValueId u, const Shape& shape);

}  // namespace lumen::graph
