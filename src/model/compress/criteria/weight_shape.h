// Statistics of a weight's distribution, and the rounding errors of most numbers and of the few largest. Proved by
// tests/model/compress/criteria/weight_shape_test.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lumen::model::compress {

// Numbers beyond this many standard deviations are the tail.
inline constexpr double kTailDeviations = 4;

struct ShapeErrors {
  double all = 0;   // sum of (w - y)^2 over that of w^2, columns weighted by `columns_count`
  double tail = 0;  // the same for numbers more than kTailDeviations standard deviations from 0, unweighted
};
// w and y [rows, columns]; columns_count: a weight per column, or empty. 0 where the divisor is 0.
ShapeErrors shape_errors(std::span<const float> w, std::span<const float> y, std::span<const float> columns_count);

// The median over groups of `group` adjacent numbers of |max + min| / (max - min): 0 for groups symmetric about zero, 1
// where all numbers of a group have one sign.
double median_asymmetry(std::span<const float> w, int64_t group);

}  // namespace lumen::model::compress
