// split_columns: a weight [N, K] (or [E, N, K]) whose products sum over K becomes parts along K, each a parameter of
// its own that may be stored in a format of its own; y = x W^T becomes the sum of products of slices of x with the
// parts. With an order the parts hold the columns in that order, and x is gathered along K first. Proved by
// tests/graph/transform/split_columns_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct ColumnSplit {
  std::string weight;            // a parameter input
  std::vector<int64_t> columns;  // of each part, at least two; their sum is K
  // A parameter [K] of f32: column j of the concatenated parts is column order[j] of the weight. Empty: they have the
  // weight's own order, or the producer of x uses theirs.
  std::string order;
};

// Sizes of the parts of a weight along one axis: error unless there are at least two parts, each with 1 to `all` of the
// axis, that have `all` together. `unit` names what the axis counts, as in "columns".
void check_part_sizes(std::string_view weight, const std::vector<int64_t>& sizes, int64_t all, std::string_view unit);

// The parameter of part i.
std::string column_part(const std::string& weight, size_t i);

// Calls are inlined. A weight that is not in the graph is skipped (a family's functions do not all use all weights).
// Error when parts do not sum to K, or when a reader of the weight is no product along K.
Graph split_columns(Graph g, const std::vector<ColumnSplit>& splits);

// Weights that can be split: parameters of two or three axes that are read only by products along their last axis;
// those that read the same value (x, and with it the axis) are grouped, in the order of the graph.
struct SharedColumns {
  std::vector<std::string> weights;
  int64_t columns = 0;
};
std::vector<SharedColumns> splittable_weights(Graph g);

}  // namespace lumen::graph
