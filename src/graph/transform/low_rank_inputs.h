// Helpers for low-rank changes, added to products with a weight (low_rank.h) or inside its rounding (rounded_sum.h).
// Proved by tests/graph/transform/low_rank_test.cpp and rounded_sum_test.cpp.
#pragma once

#include <utility>

#include "graph/transform/low_rank.h"

namespace lumen::graph {

// The weight of a change. Error when it is no matrix that a low-rank change can be added to.
ValueId low_rank_weight(const Graph& g, const LowRank& change);

// Shapes of a and b for a weight of this shape.
std::pair<Shape, Shape> low_rank_shapes(const Shape& weight, const LowRank& change);

// How a node reads a weight with low-rank changes: as a matrix, in a product that sums over its columns; as stacked
// matrices that rows select in such a product; or row by row, as an embedding.
enum class LowRankUse { other, product, picked, rows };
LowRankUse low_rank_use(const Graph& g, ValueId user, size_t operand);

}  // namespace lumen::graph
