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

// Words of `run` lanes that two vectors of a unit trade: the first vector gets the lower halves of both vectors' runs,
// the second one the upper halves.
struct Trade {
  size_t first = 0, second = 0;
  int run = 2;
};
// An order in which vectors have traded words of `k` elements, and in which other places they lie: vector v is number
// from[v] of those that traded.
struct TradedOrder {
  LaneOrder before, order;
  std::vector<Trade> trades;
  std::vector<size_t> from;
  // The same for sums of integers, which is cheaper for one row: chains of vectors before the trades whose words lie in
  // the same groups, and trades of their sums, after which both vectors are added and the second one is gone.
  std::vector<std::vector<size_t>> chains;
  std::vector<Trade> joins;
};
// Vectors trade until as many of them as possible have words of the same groups: their products are then added as
// integers before they are scaled. For products of many rows, which unpack the weight once.
TradedOrder with_groups_apart(const LaneOrder& order, int k, int64_t group);
// The lanes, of two concatenated vectors of `lanes` words, that the first (second) vector of a trade has after it.
std::vector<int> lanes_after(const Trade& trade, int lanes, bool second);

}  // namespace lumen::synth
