// The effect of a formula on the scale of its inputs: the degree in which it is homogeneous in some of them.
// Proved by tests/graph/equivalence/degree_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "number/formula/formula.h"

namespace lumen::graph {

struct DegreeQuestion {
  std::vector<bool> scaled;     // by input: multiplied by one positive number
  bool linear = false;          // sums and multiples alone: |x|, max and min do not count
  std::vector<bool> shiftable;  // inputs for which `input + constant` may be the scaled quantity; empty: none
};

struct Degree {
  int degree = 0;               // the result is multiplied by that power of the factor
  std::vector<double> offsets;  // by input: the constant added before scaling
};

// nullopt if the first output is not homogeneous.
std::optional<Degree> degree_of(const Formula& f, const DegreeQuestion& question);

// Whether the formula is the square of its input `slot`.
bool is_square(const Formula& f, int slot);

}  // namespace lumen::graph
