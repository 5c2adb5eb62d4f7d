// The parameters that must be permuted with the columns of a weight so that a graph's results stay: rows of the
// preceding weights, and biases, traced back through per-channel operations, whatever the function. Proved by
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

// `weights` read the same value by products along their columns, and that value has no other readers. nullopt if the
// order of its channels is not free: it has other readers, or its producers are not per-channel back to rows of weights
// (norms, streams, heads). Calls inlined, simplified.
std::optional<RowsBefore> rows_before(const Graph& g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
