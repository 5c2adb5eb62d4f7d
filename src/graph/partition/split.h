// A split: the distribution of one axis of a value over ranks, and its propagation through views. Extents are numbers.
// Proved by tests/graph/partition/split_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The axis consists of consecutive sections; each is divided into equal chunks, in the order of ranks. A rank has its
// chunks of all sections, concatenated: queries, keys and values in one matrix are three sections.
struct Split {
  int axis = 0;
  std::vector<int64_t> sections;
  friend bool operator==(const Split&, const Split&) = default;
};

Split whole_axis(const Shape& shape, int axis);  // of one section
bool deals(const Split& split, int ranks);       // whether ranks divide every section
// The shape of one rank's part of a split value.
Shape local_shape(const Shape& shape, const Split& split, int ranks);

// The split of the same elements, row-major, under another shape, in either direction: the outermost axis that the
// ranks divide, or else the outermost that could be split at all; `divides` distinguishes them. nullopt if the chunks
// are no chunks of one axis.
struct Reshaped {
  Split split;
  bool divides = true;
};
std::optional<Reshaped> through_reshape(const Shape& from, const Split& split, const Shape& to, int ranks);

// The sections of an axis that lie in [start, start + count): nullopt if a section reaches beyond.
std::optional<std::vector<int64_t>> sections_in(const std::vector<int64_t>& sections, int64_t start, int64_t count);

}  // namespace lumen::graph
