// The order in which an integer dot takes the elements of a row. A sum allows any order, and activations are written in
// any order at no cost, so it is the order in which plain loads, shifts and masks extract codes from memory: all
// elements whose bits are at one position of their bytes make a vector. Derived from the layout. Proved by
// tests/kernel/synth/lane_order_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "number/format/format.h"

namespace lumen::synth {

constexpr int64_t kActivationGroup = 32;  // elements that share a scale a' = max|x| / 127

// Vectors of elements; -1: a lane without one (only after the last element). Every element is in one lane.
struct LaneOrder {
  int64_t elements = 0;
  std::vector<std::vector<int64_t>> vectors;
};

// Consecutive elements.
LaneOrder natural_order(int64_t elements, int lanes);

// How rows of k elements are split: units of equal order, and the rest in natural order.
struct RowOrder {
  LaneOrder unit, rest;
  int64_t units = 0;  // of a row
  int64_t rest_groups(int64_t group) const { return (rest.elements + group - 1) / group; }
};

// For vectors of `lanes` in which `run` adjacent lanes make one sum, which must be in one aligned group of `group`
// elements; a unit is whole activation groups, with at most `most_groups` groups if possible.
RowOrder choose_order(const Format& f, int64_t k, int lanes, int run, int64_t group, int64_t most_groups);

}  // namespace lumen::synth
