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

// How a node reads a weight that changes of low rank are added to: as a matrix, in a product that sums over its
// columns; as stacked matrices, of which rows pick theirs in such a product; or row by row, as an embedding.
enum class LowRankUse { other, product, picked, rows };
LowRankUse low_rank_use(const Graph& g, ValueId user, size_t operand);

}  // namespace lumen::graph
