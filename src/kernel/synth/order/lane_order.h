// In which order the elements of a row meet an integer dot. A sum does not care, and activations are written in any
// order at no cost, so the order is the one in which codes come out of memory by plain loads, shifts and masks: all
// elements whose bits stand at one place of their bytes make a vector. Found from the layout. Proved by
// tests/kernel/synth/lane_order_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "number/format/format.h"

namespace lumen::synth {

constexpr int64_t kActivationGroup = 32;  // elements that share a scale a' = max|x| / 127

// Vectors of elements; -1: a lane without one (only behind the last element). Every element lies in one lane.
struct LaneOrder {
  int64_t elements = 0;
  std::vector<std::vector<int64_t>> vectors;
};

// One after another.
LaneOrder natural_order(int64_t elements, int lanes);

// How the elements of rows of k are cut: units of equal order, and what is left in natural order.
struct RowOrder {
  LaneOrder unit, rest;
  int64_t units = 0;  // of a row
  int64_t rest_groups(int64_t group) const { return (rest.elements + group - 1) / group; }
};

// For vectors of `lanes` of which `run` neighbours make one sum, which must lie in one aligned group of `group`
// elements; a unit is whole activation groups, and has at most `most_groups` groups where it can.
RowOrder choose_order(const Format& f, int64_t k, int lanes, int run, int64_t group, int64_t most_groups);

}  // namespace lumen::synth
