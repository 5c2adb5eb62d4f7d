// What changes places with the experts of a mixture, so that the graph computes the same: rows of the router, biases,
// whatever is indexed by an expert's number. Found from the integers that pick experts back to what they are computed
// from, and then proved forward: every value either stays, or has its elements along the experts in the new order, or
// names experts by their new numbers. Equal scores may fall to another expert. Proved by
// tests/graph/equivalence/expert_order_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// `weights`: stacked ones [E, ..] of one mixture (transform/split_experts.h). The parameters beside them whose first
// axis runs along the experts; nothing where numbers of experts mean more than names, as in groups of them. Without
// calls.
std::optional<std::vector<std::string>> expert_order(const Graph& g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
