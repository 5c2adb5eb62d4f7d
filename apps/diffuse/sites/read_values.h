// Returns the activations that products with weights read: for calibration.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The position of a product's rows within a value in memory order: the windows of an image overlap, and are read from
// the image (including its padding), which has each number once.
struct ReadRows {
  int64_t offset = 0;
  std::vector<int64_t> row_extents, row_strides;        // of the axes that count rows
  std::vector<int64_t> column_extents, column_strides;  // of the weight's axes but the first

  int64_t count() const;                      // rows
  int64_t first_of(int64_t row) const;        // offset without its columns
  std::vector<int64_t> column_steps() const;  // offset of each column
};

struct HandedReads {
  Graph graph;
  // By weight: the operand of each product that reads it, f32, a result of the graph: read_value(weight, number of the
  // product).
  std::map<std::string, std::vector<ReadRows>> rows;
};
std::string read_value(const std::string& weight, size_t product);

// Adds those results for the weights of sites (sites.h); weights without sites are skipped. Calls are inlined. Numeric
// dims.
// Proved by tests/apps/diffuse/sites/windows_test.cpp.
HandedReads hand_back_reads(Graph g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
