// Which rows of which parameter are which rank's: its part of the optimizer's states, and of sums of gradients. What
// the optimizer computes element by element is cut along rows, so that blocks of formats stay whole; what it computes
// of a matrix as a whole is one rank's. Proved by tests/model/train/ranks/cuts_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/recipe/optimizer/optimizer_rule.h"

namespace lumen::model {

struct Cut {
  Parameter whole;             // as every rank has it
  int64_t rows = 0;            // vectors: of one element each
  int64_t columns = 0;         // elements of a row
  std::vector<int64_t> first;  // by rank its first row, and behind the last rank all rows
  bool in_rows = true;         // no: one rank has all of them

  int64_t rows_of(int rank) const { return first[rank + 1] - first[rank]; }
  // The part as a parameter of its own. It must not be empty.
  Parameter part(int rank) const;
  // The type that a tensor of the parameter's shape has in a part.
  graph::Type part_of(const graph::Type& type, int rank) const;
};

// In the order of `parameters`.
std::vector<Cut> cut_parameters(const std::vector<Parameter>& parameters, const Optimizer& optimizer, int ranks);

// A part's bytes out of a whole tensor's, and into it; both as tensors of their types have them.
std::vector<uint8_t> part_bytes(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> bytes, int rank);
void place_part(const Cut& cut, const graph::Type& whole, std::span<const uint8_t> part, int rank,
                std::span<uint8_t> bytes);

}  // namespace lumen::model
