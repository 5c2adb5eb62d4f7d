// Properties of a family's functions that guide quantization, found by structure alone (SegQuant, Zhang et al. 2025,
// arXiv 2507.14811): products of activations with weights [N, K] and convolutions, which are products of windows with
// weights [N, K.., C]; the boundaries at which their results are split or their operands were concatenated, and whether
// an operand is the output of SiLU or GELU. Also the rewriting of such products to few bits.
//
// May include: apps/weighted_product, base, graph/ir, graph/match, graph/pass, number/facts.
// Offers: quantized_products.h, read_values.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Properties that products with one weight share. A convolution's columns are the numbers of a window in the weight's
// order: place by place, the channels of each. Proved by tests/apps/diffuse/sites/sites_test.cpp.
struct ProductSite {
  std::string weight;             // a parameter [rows, window.., channels]
  int64_t rows = 0, columns = 0;  // columns: places x channels
  std::vector<int64_t> window;    // extents of the axes between; none: no convolution
  // Widths in order, of sum `rows`, at which all readers of the result split it along its last axis: slices that cover
  // it, after reshapes, casts and a bias. Empty: it is not split.
  std::vector<int64_t> row_segments;
  // The same for the operand: parts of a concat along the last axis, or heads that a reshape merged; for a convolution,
  // channel widths times places. Empty if the result is split.
  std::vector<int64_t> column_segments;
  // The operand is SiLU or GELU of a value, in any form that computes it, below casts and reshapes: its negative
  // numbers are small. False if the activation's output is multiplied with another value.
  bool is_polar = false;

  int64_t places() const;  // of a window; 1 without one
};

// Products that read a parameter as weight and sum over all its axes but the first, which is in the result; the weight
// has no other readers. In the order of the first product of each. Numeric dims. Calls are inlined.
std::vector<ProductSite> product_sites(Graph g);

// Parameters that products of activations read and that are no site's weight, and the reason, for messages.
struct LeftWeight {
  std::string weight, why;
};
std::vector<LeftWeight> left_weights(Graph g);

// The products of sites, as values of a graph without calls, by weight; each weight's in the graph's order.
struct SiteProduct {
  ValueId product = -1;
  int side = 1;  // the weight's
};
std::map<ValueId, std::vector<SiteProduct>> products_of_sites(const Graph& g);

}  // namespace lumen::graph
