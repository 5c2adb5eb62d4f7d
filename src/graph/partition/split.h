// A split: how one axis of a value is dealt to ranks, and how views hand that on. Extents are numbers. Proved by
// tests/graph/partition/split_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The axis consists of sections, one behind the other; each is dealt in equal chunks, in the order of ranks. A rank has
// its chunks of all sections, one behind the other: queries, keys and values in one matrix are three sections.
struct Split {
  int axis = 0;
  std::vector<int64_t> sections;
  friend bool operator==(const Split&, const Split&) = default;
};

Split whole_axis(const Shape& shape, int axis);  // of one section
bool deals(const Split& split, int ranks);       // whether ranks divide every section
// What one rank has of a value that is split.
Shape local_shape(const Shape& shape, const Split& split, int ranks);

// The split of the same elements, row-major, under another shape, either way: the outermost axis that ranks divide, or
// the outermost that could be dealt at all; `divides` says which. Nothing when chunks are no chunks of one axis.
struct Reshaped {
  Split split;
  bool divides = true;
};
std::optional<Reshaped> through_reshape(const Shape& from, const Split& split, const Shape& to, int ranks);

// Those sections of an axis that lie in [start, start + count): nothing when a section reaches beyond.
std::optional<std::vector<int64_t>> sections_in(const std::vector<int64_t>& sections, int64_t start, int64_t count);

}  // namespace lumen::graph
