// How the numbers of a weight lie, and what rounding does to most of them and to the few largest. Proved by
// tests/model/compress/criteria/weight_shape_test.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lumen::model {

// Deviations from which a number belongs to the tail.
inline constexpr double kTailDeviations = 4;

struct ShapeErrors {
  double all = 0;   // sum of (w - y)^2 over that of w^2, columns counting as much as `columns_count` says
  double tail = 0;  // the same of numbers more than kTailDeviations standard deviations from 0, all columns alike
};
// w and y [rows, columns]; columns_count: one for each column, or empty. Zeros where there is nothing to be relative
// to.
ShapeErrors shape_errors(std::span<const float> w, std::span<const float> y, std::span<const float> columns_count);

// The median over groups of `group` neighbours of |max + min| / (max - min): 0 where groups reach as far below zero as
// above, 1 where all their numbers have one sign.
double median_asymmetry(std::span<const float> w, int64_t group);

}  // namespace lumen::model
