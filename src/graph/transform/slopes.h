// add_slopes: a part of a model (layers.h) with its way back. Given what the loss gains by each number that the part
// hands on (seeds), it computes what the loss gains by each number that it reads, and sums up over every run, as
// states, the squares of what the loss gains by what products with weights give: with the gram of what these weights
// read, that is how much the loss rises when they are rounded (the Fisher matrix in its factors). Proved by
// tests/graph/transform/slopes_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// What else is computed of each product.
struct SlopeKinds {
  // States channel_slope_name: by columns of the weight, [K] or [E, K], the sum over rows of |g|^2 x^2, with g what the
  // loss gains by all that a row of x gives: the diagonal of the Fisher matrix, summed over a column.
  bool channels = false;
  // Results gradient_name of each weight: what the loss gains by it, over all rows of a run.
  bool weights = false;
};

struct Slope {
  std::string weight;    // as the graph calls it
  bool by_rows = true;   // [N] or [E, N]: of products, by rows of the weight; else [K], of rows that are looked up
  int64_t matrices = 0;  // E; 0: rows do not pick
};

// Names. Seeds are data inputs, one for each float result, of its type; a part's losses get ones, or zeros where they
// do not count.
std::string seed_name(const std::string& result);
std::string slope_name(const std::string& weight);  // states
std::string channel_slope_name(const std::string& weight);
std::string gradient_name(const std::string& input);  // results: of float data inputs, but seeds, and of weights

// Numeric dims of weights; without calls. Other results than gradients and states are gone, but what computed them is
// still there, for taps (taps.h) to look at.
Graph add_slopes(Graph g, std::vector<Slope>* slopes, const SlopeKinds& kinds = {});

// The same with whole gradients: states that sum up what the loss gains by each number of the parameters, in their
// shapes. `weights`: those that the part reads as floats.
std::string gradient_sum_name(const std::string& weight);
Graph add_gradients(Graph g, std::vector<std::string>* weights);

}  // namespace lumen::graph
