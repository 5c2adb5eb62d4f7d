// add_low_rank: products with a weight get a second, narrow way beside it: y += (x A^T) B^T. The weight stays as it is
// stored, whatever its format. With a gain, what the weight itself gives is multiplied by a number for each of its rows
// first: y = gain * (x W^T) + (x A^T) B^T. Proved by tests/graph/low_rank_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct LowRank {
  std::string weight;  // a parameter input, [N, K]
  int64_t rank = 0;
  // False: beside products with the weight; a is [rank, K]. True: beside reading its rows by number; a is [N, rank].
  bool rows = false;
  bool gain = false;
};
// The two new parameter inputs, f32: a, and b [N, rank], or [K, rank] where rows are read.
std::string low_rank_a(const std::string& weight);
std::string low_rank_b(const std::string& weight);
// The third, with a gain: [N], or [K] where rows are read.
std::string low_rank_gain(const std::string& weight);

// Expands calls on the way. Error when a weight has no use of its kind, or is no matrix.
Graph add_low_rank(Graph g, const std::vector<LowRank>& parts);

}  // namespace lumen::graph
