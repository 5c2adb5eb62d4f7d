// Splits a problem into independent parts: connected components of items under pair terms. Of each part only the
// assignments on the Pareto front of cost and score are kept. Proved by
#pragma once

#include <cstdint>
#include <vector>

#include "model/compress/choose/problem.h"

namespace lumen::model::compress {

enum class ChoiceCost { bytes, time };  // of candidates; times are whole nanoseconds, rounded up

struct PartPoint {
  double cost = 0, value = 0;  // one of them is a whole number
  uint64_t code = 0;           // the assignment, see ChoicePart::write
};

struct ChoicePart {
  size_t block = 0;
  std::vector<size_t> items;      // of the block
  std::vector<PartPoint> points;  // by ascending cost, descending value
  bool whole = true;              // all assignments were enumerated
  // Otherwise: the candidates that codes number, and independent items whose loss is a lower bound of the part's.
  std::vector<std::vector<size_t>> seen;
  std::vector<std::vector<PartPoint>> relaxed;

  // Writes a code's candidates into the block's picks: digits of a whole part's code, the first item's the lowest.
  void write(const ChoiceBlock& of, uint64_t code, std::vector<size_t>& picks) const;
};

// Values are scores. Parts with more assignments than `most` are only searched heuristically.
std::vector<ChoicePart> parts_of(const ChoiceProblem& problem, ChoiceCost cost, int64_t most);

// Sorted by ascending cost, without dominated points.
std::vector<PartPoint> undominated(std::vector<PartPoint> points);

int64_t nanoseconds(double ms);

}  // namespace lumen::model::compress
