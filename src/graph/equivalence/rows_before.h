// What must be put into another order with the columns of a weight so that a graph's results stay: rows of the weights
// before, and biases, found back through what is computed channel by channel, whatever the function. Proved by
// tests/graph/equivalence/rows_before_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct RowsBefore {
  std::vector<std::string> rows;      // weights [N, K] or [E, N, K]: their rows, of each matrix alike
  std::vector<std::string> elements;  // parameters, along their last axis
};

// `weights` read the same value by products along their columns and are what alone reads it. Nothing where the order of
// its channels is not free: something else reads them, or what makes them is not channel by channel down to rows of
// weights (norms, streams, heads). Calls inlined, simplified.
std::optional<RowsBefore> rows_before(const Graph& g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
