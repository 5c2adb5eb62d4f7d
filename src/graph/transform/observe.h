// observe: adds results with activation statistics of products with weights, for calibration (importance matrices): for
// each column of a weight [N, K] the sum of squares of the numbers it was multiplied with, over all rows of the other
// operand. For a weight [E, N, K] whose matrices rows select: matrix by matrix, with the number of rows that selected
// each. Sums are f32, in the fixed order of reductions. Proved by tests/graph/transform/observe_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct Observed {
  std::string weight;    // name of a parameter
  int64_t columns = 1;   // K
  int64_t matrices = 0;  // E; 0: rows do not select
};

std::string observed_squares(const std::string& weight);  // the result f32 [K] or [E, K]
std::string observed_counts(const std::string& weight);   // f32 [E], of selected matrices

// Adds results for every weight that a product reads in this way; all its uses are summed. Numeric dims of weights.
Graph observe(Graph g, std::vector<Observed>* observed);

}  // namespace lumen::graph
