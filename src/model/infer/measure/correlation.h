// How well one list of numbers follows another. Proved by tests/model/infer/measure.
#pragma once

#include <span>

namespace lumen::model {

// Pearson's: of straight lines, -1 to 1. Not a number where one of the lists does not vary. Lists of equal length.
double linear_correlation(std::span<const double> a, std::span<const double> b);
// Spearman's: the same of ranks, equal numbers sharing the mean of theirs.
double rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace lumen::model
