// What a change of low rank needs of a graph, beside a weight (low_rank.h) or inside its rounding (rounded_sum.h).
// Proved by tests/graph/transform/low_rank_test.cpp and rounded_sum_test.cpp.
#pragma once

#include <utility>

#include "graph/transform/low_rank.h"

namespace lumen::graph {

// The weight a change is of. Error when it is no matrix that a change of low rank could be added to.
ValueId low_rank_weight(const Graph& g, const LowRank& change);

// Shapes of a and b beside a weight of this shape.
std::pair<Shape, Shape> low_rank_shapes(const Shape& weight, const LowRank& change);

}  // namespace lumen::graph
