// What products with weights read, handed back: for calibration.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

std::string read_value(const std::string& weight);  // name of the result: f32 [rows, columns of the weight]

// Adds those results for weights that products read (sites.h); of several products with one, one behind the other.
// Calls are inlined. Numeric dims. Proved by tests/graph/sites/quantized_products_test.cpp.
Graph hand_back_reads(Graph g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
