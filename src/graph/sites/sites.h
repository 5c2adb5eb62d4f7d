// Where quantization of a family's functions can follow their structure alone (SegQuant, Zhang et al. 2025, arXiv
// 2507.14811): products of activations with weights [N, K] and convolutions, which are products of windows with weights
// [N, K.., C]; the borders at which their results are cut or their operands were put together, and whether they read
// what SiLU or GELU made. And their form in few bits.
//
// May include: base, graph/ir, graph/match, graph/pass, number/facts.
// Offers: quantized_products.h, read_values.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// What products with one weight have in common. A convolution's columns are the numbers of a window as they lie in the
// weight: place by place, the channels of each. Proved by tests/graph/sites/sites_test.cpp.
struct ProductSite {
  std::string weight;             // a parameter [rows, window.., channels]
  int64_t rows = 0, columns = 0;  // columns: places x channels
  std::vector<int64_t> window;    // extents of the axes between; none: no convolution
  // Widths in order, of sum `rows`, at which all that reads the result cuts it along its last axis: slices that cover
  // it, behind reshapes, casts and a bias. Empty: it is not cut.
  std::vector<int64_t> row_segments;
  // The same of the operand: what a concat along the last axis put together, or heads that a reshape merged; of a
  // convolution so many of its columns, for channels are read at every place. Not where the result is cut.
  std::vector<int64_t> column_segments;
  // The operand is SiLU or GELU of something, in any form that computes it, below casts and reshapes: its negative
  // numbers are small. What is multiplied with anything else behind that is not.
  bool is_polar = false;

  int64_t places() const;  // of a window; 1 without one
};

// Products whose weight is a parameter of which they sum all axes but the first, which comes out, and that nothing else
// reads; by the order of the first product of each. Numeric dims. Calls are inlined.
std::vector<ProductSite> product_sites(Graph g);

// Parameters that products of activations read and that are no site's weight, and why, for people.
struct LeftWeight {
  std::string weight, why;
};
std::vector<LeftWeight> left_weights(Graph g);

// Those products, as values of a graph without calls, by weight; each weight's in the graph's order.
struct SiteProduct {
  ValueId product = -1;
  int side = 1;  // the weight's
};
std::map<ValueId, std::vector<SiteProduct>> products_of_sites(const Graph& g);

}  // namespace lumen::graph
