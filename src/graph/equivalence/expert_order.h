// The parameters that must be permuted with the experts of a mixture to keep a graph's results: rows of the router,
// biases, everything indexed by an expert's number. Found from the integers that select experts back to their sources,
// and then proved forward: every value either stays, or has its elements along the experts in the new order, or names
// experts by their new numbers. Ties between scores may select another expert. Proved by
// tests/graph/equivalence/expert_order_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// `weights`: stacked ones [E, ..] of one mixture (transform/split_experts.h). Returns the other parameters whose first
// axis runs along the experts; nullopt where numbers of experts are more than names, as in groups of experts. Without
// calls.
std::optional<std::vector<std::string>> expert_order(const Graph& g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
