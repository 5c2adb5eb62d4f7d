// Products of activations with weights, for passes that rewrite them: the role of each index, and the sources below the
// views and pads of their operands. Proved by
// tests/apps/diffuse/sites/sites_test.cpp and tests/apps/classify/ranges/ranges_test.cpp.
//
// May include: graph/ir, graph/match.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Letters of a product of two operands, one of which, `side`, is the weight.
struct ProductLetters {
  std::string rows;     // of the result that the weight does not have; in the result's order, like the next two
  std::string groups;   // that both operands and the result have
  std::string outputs;  // that the weight and the result have
  std::string columns;  // of the other operand that are summed, in its order
};
ProductLetters product_letters(const Node& product, int side);

// The views and pads from the lowest up to v; empty if v is neither.
std::vector<ValueId> views_and_pads(const Graph& g, ValueId v);

// The position of an operand's axis after a view or a pad, if the axis is whole and in order; -1: none. Numeric dims.
int axis_after(const Graph& g, const Node& node, int axis);

}  // namespace lumen::graph
