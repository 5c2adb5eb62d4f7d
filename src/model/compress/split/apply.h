// Models with weights in parts: columns sorted by impact, and cut. The model computes the same, except for the order of
// its sums. Proved by tests/model/compress/split/split_test.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/transform/split_columns.h"
#include "model/compress/split/columns.h"

namespace lumen::model::compress {

struct WeightParts {
  std::string weight;
  std::vector<int64_t> columns;  // of each part; their sum is all
};

// Error for weights that are rounded already, and for models with parts or run-time rotations.
arch::Model with_parts_of(const arch::Model& model, std::span<const ColumnGroup> groups,
                          std::span<const WeightParts> parts);

}  // namespace lumen::model::compress
