// Whether a formula is linear, without a constant part, in some of its inputs together: then it commutes with a sum
// over ranks. Proved by tests/graph/partition/partition_test.cpp.
#pragma once

#include <vector>

#include "number/formula/formula.h"

namespace lumen::graph {

bool is_linear(const Formula& f, const std::vector<bool>& inputs);

}  // namespace lumen::graph
