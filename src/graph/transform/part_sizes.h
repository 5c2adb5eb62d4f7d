// The sizes of the parts that a weight is split into along one axis (split_columns.h, split_experts). Proved by
// tests/graph/transform/split_columns_test.cpp and tests/graph/transform/split_experts/split_experts_test.cpp.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lumen::graph {

// Error unless there are at least two parts, each with at least 1, that sum to `all`. `unit` is the unit of the axis
// for messages, as in "columns".
void check_part_sizes(std::string_view weight, const std::vector<int64_t>& sizes, int64_t all, std::string_view unit);

}  // namespace lumen::graph
