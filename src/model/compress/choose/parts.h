// A problem in parts that nothing couples: items that pairs connect. Of each part only those assignments are kept that
// no other beats in both cost and score. Proved by tests/model/compress/choose/solve_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "model/compress/choose/problem.h"

namespace lumen::model {

enum class ChoiceCost { bytes, time };  // of candidates; times count in whole nanoseconds, rounded up

struct PartPoint {
  double cost = 0, value = 0;  // whole numbers one of them
  uint64_t code = 0;           // the assignment, see ChoicePart::write
};

struct ChoicePart {
  size_t block = 0;
  std::vector<size_t> items;      // of the block
  std::vector<PartPoint> points;  // by rising cost, values fall
  bool whole = true;              // all assignments were looked at
  // Where not: those that codes number, and independent items that lose no more than the part does.
  std::vector<std::vector<size_t>> seen;
  std::vector<std::vector<PartPoint>> relaxed;

  // A code's candidates into the block's picks: digits of a whole part's code, the first item's the lowest.
  void write(const ChoiceBlock& of, uint64_t code, std::vector<size_t>& picks) const;
};

// Values are scores. Parts with more assignments than `most` are searched for good ones only.
std::vector<ChoicePart> parts_of(const ChoiceProblem& problem, ChoiceCost cost, int64_t most);

// Sorted by rising cost, without what another beats.
std::vector<PartPoint> undominated(std::vector<PartPoint> points);

int64_t nanoseconds(double ms);

}  // namespace lumen::model
