// How far numbers are from those that they stand for. Proved by tests/model/compress/merge_test.cpp.
#pragma once

#include <span>

namespace lumen::model {

// |x - y| / |y| of as many numbers each, Euclidean; 0 where y is all zeros.
double relative_error(std::span<const float> x, std::span<const float> y);

}  // namespace lumen::model
