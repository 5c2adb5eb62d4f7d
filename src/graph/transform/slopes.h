// add_slopes: a part of a model (layers.h) with its backward pass. Given the gradients of the loss by the part's
// outputs (seeds), it computes the gradients by its inputs, and accumulates over all runs, as states, the squares of
// the gradients by outputs of products with weights: with the Gram matrix of these products' activations, they predict
// the loss increase from rounding the weights (a factored Fisher matrix). Proved by
// tests/graph/transform/slopes_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Additional values to compute for each product.
struct SlopeKinds {
  // States channel_slope_name: by columns of the weight, [K] or [E, K], the sum over rows of |g|^2 x^2, with g the
  // gradient of the loss by the outputs of a row of x: the diagonal of the Fisher matrix, summed over a column.
  bool channels = false;
  // Results gradient_name of each weight: its gradient, over all rows of a run.
  bool weights = false;
};

struct Slope {
  std::string weight;    // its name in the graph
  bool by_rows = true;   // [N] or [E, N]: of products, by rows of the weight; else [K], of gathered rows
  int64_t matrices = 0;  // E; 0: rows do not select
};

// Names. Seeds are data inputs, one for each float result, of its type; a part's losses get ones, or zeros if they are
// to be ignored.
std::string seed_name(const std::string& result);
std::string slope_name(const std::string& weight);  // states
std::string channel_slope_name(const std::string& weight);
std::string gradient_name(const std::string& input);  // results: of float data inputs except seeds, and of weights

// Numeric dims of weights; without calls. Results other than gradients and states are removed, but the nodes that
// computed them stay, for taps (taps.h).
Graph add_slopes(Graph g, std::vector<Slope>* slopes, const SlopeKinds& kinds = {});

// The same with whole gradients: states that accumulate the gradients of the parameters, in their shapes. `weights`:
// those that the part reads as floats.
std::string gradient_sum_name(const std::string& weight);
Graph add_gradients(Graph g, std::vector<std::string>* weights);

}  // namespace lumen::graph
