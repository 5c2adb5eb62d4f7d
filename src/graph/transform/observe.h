// observe: further results that say what products with weights read, for calibration (importance matrices): of each
// column of a weight [N, K] the sum of squares of the numbers it was multiplied with, over all rows of the other
// operand. Of a weight [E, N, K] whose matrices rows pick: matrix by matrix, and how many rows picked each. Sums are
// f32, in the fixed order of reductions. Proved by tests/graph/transform/observe_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct Observed {
  std::string weight;    // name of a parameter
  int64_t columns = 1;   // K
  int64_t matrices = 0;  // E; 0: rows do not pick
};

std::string observed_squares(const std::string& weight);  // the result f32 [K] or [E, K]
std::string observed_counts(const std::string& weight);   // f32 [E], of those that rows pick

// Adds results for every weight that a product reads so; its uses are summed together. Numeric dims of weights.
Graph observe(Graph g, std::vector<Observed>* observed);

}  // namespace lumen::graph
