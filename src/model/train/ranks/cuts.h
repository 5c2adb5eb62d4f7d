// Assigns rows of parameters to ranks, for their parts of optimizer states and gradient sums. Parameters with an
// elementwise optimizer are cut along rows, so that format blocks stay whole; where the optimizer computes on whole
// matrices, one rank gets the matrix. Proved by tests/model/train/ranks/cuts_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/recipe/optimizer/optimizer_rule.h"

namespace lumen::model::train {

struct Cut {
  arch::Parameter whole;       // as every rank has it
  int64_t rows = 0;            // of a vector: one element each
  int64_t columns = 0;         // elements of a row
  std::vector<int64_t> first;  // first row by rank, then the row count
  bool in_rows = true;         // false: one rank has all rows

  int64_t rows_of(int rank) const { return first[rank + 1] - first[rank]; }
  // The part as a parameter. It must not be empty.
  arch::Parameter part(int rank) const;
  // The part's type of a tensor with the parameter's shape.
  graph::Type part_of(const graph::Type& type, int rank) const;
};

// In the order of `parameters`.
std::vector<Cut> cut_parameters(const std::vector<arch::Parameter>& parameters, const recipe::Optimizer& optimizer,
                                int ranks);

// Copies a part's bytes out of a whole tensor, and into it; both in the layout of their types.
std::vector<uint8_t> part_bytes(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> bytes, int rank);
void place_part(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> part, int rank,
                std::span<uint8_t> bytes);

}  // namespace lumen::model::train
