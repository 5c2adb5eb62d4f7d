// What leads from a value to its largest or smallest number, where a kernel that has the value at hand may find that on
// its way. Proved by tests/graph/pass/group_codes.txt and group_product_codes.txt.
#pragma once

#include "graph/fuse/partition.h"

namespace lumen::graph {

// From u on, a user of a value of this shape: perhaps a map of it, and a reduction or two to a single number that
// nothing else reads. Empty where there is no such thing.
std::vector<ValueId> extreme_chain(const Partition& p, ValueId u, const Shape& shape);

}  // namespace lumen::graph
