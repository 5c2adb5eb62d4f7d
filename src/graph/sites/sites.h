// Where quantization of a family's functions can follow their structure alone (SegQuant, Zhang et al. 2025, arXiv
// 2507.14811): products of activations with weights [N, K], the borders at which their results are cut or their
// operands were put together, and whether they read what SiLU or GELU made. And their form in few bits.
//
// May include: base, graph/ir, graph/match, graph/pass, number/facts.
// Offers: quantized_products.h, read_values.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// What products with one weight have in common. Proved by tests/graph/sites/sites_test.cpp.
struct ProductSite {
  std::string weight;  // a parameter [rows, columns]
  int64_t rows = 0, columns = 0;
  // Widths in order, of sum `rows`, at which all that reads the result cuts it along its last axis: slices that cover
  // it, behind reshapes, casts and a bias. Empty: it is not cut.
  std::vector<int64_t> row_segments;
  // The same of the operand: what a concat along the last axis put together, or heads that a reshape merged. Not where
  // the result is cut.
  std::vector<int64_t> column_segments;
  // The operand is SiLU or GELU of something, in any form that computes it, below casts and reshapes: its negative
  // numbers are small. What is multiplied with anything else behind that is not.
  bool is_polar = false;
};

// Products whose weight is a parameter of two axes, by the order of their first one. Numeric dims. Calls are inlined.
std::vector<ProductSite> product_sites(Graph g);

// The operand of a value that is such a weight; -1: it is no such product.
int product_side(const Graph& g, ValueId v);

}  // namespace lumen::graph
