// What a formula does to the scale of what it reads: the degree in which it is homogeneous in some of its inputs.
// Proved by tests/graph/equivalence/degree_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "number/formula/formula.h"

namespace lumen::graph {

struct DegreeQuestion {
  std::vector<bool> scaled;     // by input: multiplied by one positive number
  bool linear = false;          // sums and multiples alone: |x|, max and min do not count
  std::vector<bool> shiftable;  // inputs of which `input + constant` is what is scaled; empty: none
};

struct Degree {
  int degree = 0;               // the result is multiplied by that power of the number
  std::vector<double> offsets;  // by input: the constant that is added before it is scaled
};

// Nothing when the first output is not homogeneous.
std::optional<Degree> degree_of(const Formula& f, const DegreeQuestion& question);

// Whether the formula is the square of its input `slot`.
bool is_square(const Formula& f, int slot);

}  // namespace lumen::graph
