// Bit widths of a mixture's experts by their significance (MoQa, Zheng et al. 2025): significance combined over several
// data sets, classes by fuzzy c-means, and a shift that hits a target average. Deterministic. Proved by
// tests/model/compress/choose/bit_classes_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lumen::model::compress {

// The significance of a layer's experts over several data sets: mean and deviation of their shares (each data set's
// numbers divided by their sum).
struct Significance {
  std::vector<double> mean, spread;  // of each member: J, and V, the standard deviation
};
// energies[d][j] of data set d and member j, >= 0; the same number of members in each. A data set of only zeros is
// ignored. Error (numeric) for a number that is negative or not finite.
Significance significance(std::span<const std::vector<double>> energies);

struct FuzzyOptions {
  size_t classes = 4;
  double fuzzifier = 2;     // above 1
  double tolerance = 1e-5;  // of memberships
  int most_rounds = 10000;
  double overlap = 1e-3;  // memberships closer than this count as equal: the lower class wins
};

struct FuzzyClasses {
  std::vector<double> centres;                   // descending
  std::vector<std::vector<double>> memberships;  // [value][class], of sum 1
  std::vector<size_t> classes;                   // of each value; 0 has the highest centre
  std::vector<double> margins;                   // the largest membership minus the second
  int rounds = 0;
};
// Centres begin at quantiles of the values (95, 65, 35 and 5 % for four classes). Fewer distinct values than classes
// leave classes empty.
FuzzyClasses fuzzy_classes(std::span<const double> values, const FuzzyOptions& options = {});
// The memberships of another value with the same centres.
std::vector<double> memberships(std::span<const double> centres, double value, double fuzzifier);

struct BitClasses {
  std::vector<size_t> classes;  // of each member
  std::vector<double> bits;     // likewise
  double average = 0;           // bits per weight, by the members' sizes
  double bias = 0;              // added to the logarithm of the significance
  double margin = 0;            // the smallest margin before the shift
  std::vector<double> margins;  // of each member, before the shift
};
// `widths` of the classes, descending (8, 6, 4, 2; of formats with their scales); `sizes`: weights of each member,
// empty: all equal. With a target, the largest bias whose average does not exceed it. Error (user) when the target is
// below the lowest width.
BitClasses bit_classes(std::span<const double> significance, std::span<const double> widths,
                       std::optional<double> target = {}, std::span<const int64_t> sizes = {},
                       const FuzzyOptions& options = {});

}  // namespace lumen::model::compress
