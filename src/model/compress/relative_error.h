// Relative error of approximated numbers. Proved by tests/model/compress/merge_test.cpp.
#pragma once

#include <span>

namespace lumen::model::compress {

// |x - y| / |y|, Euclidean; 0 where y is all zeros. Sizes must be equal.
double relative_error(std::span<const float> x, std::span<const float> y);

}  // namespace lumen::model::compress
