// Correlation of two lists of numbers. Proved by tests/model/infer/measure.
#pragma once

#include <span>

namespace lumen::model::infer {

// Pearson's linear correlation, -1 to 1. NaN if one of the lists is constant. The lists have equal length.
double linear_correlation(std::span<const double> a, std::span<const double> b);
// Spearman's rank correlation; equal numbers share the mean of their ranks.
double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace lumen::model::infer
