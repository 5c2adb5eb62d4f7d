// Solves multiple-choice problems: the least score within bytes, bits per weight or time, or the fewest bytes within a
// score. Parts connected by pairs are enumerated. Parts are joined by dynamic programming over the points that bounds
// leave (the dual of the budget, Dyer's and Zemel's), so the choice is proved to be optimal; where a work limit is met,
// the gap is reported. Deterministic. Proved by
// tests/model/compress/choose/solve_test.cpp against all choices of small problems.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/compress/choose/budget.h"
#include "model/compress/choose/problem.h"

namespace lumen::model::compress {

struct ChoiceOptions {
  bool fast = false;                       // no dynamic programming: the dual's choice, repaired; with its gap
  int64_t assignments = int64_t{1} << 22;  // parts with at most this many are enumerated
  size_t states = size_t{1} << 23;         // of the dynamic programming, of 24 bytes each
};

// Error (user) when nothing fits: gives the least possible value.
Choice choose(const ChoiceProblem& problem, const Budget& budget, const ChoiceOptions& options = {});

// The Pareto front: no point has both fewer bytes and a lower score than another. choose() with a point's bytes as
// budget gives its choice.
struct FrontPoint {
  int64_t bytes = 0;
  double bits = 0, score = 0;
};
struct ChoiceFront {
  std::vector<FrontPoint> points;  // by ascending bytes
  // All points, or a selection of at most `most`; otherwise only those on the lower convex hull, between which there
  // may be others.
  bool exact = false;
};
// At most about `most` points, including both ends.
ChoiceFront choice_front(const ChoiceProblem& problem, size_t most = 400, const ChoiceOptions& options = {});

}  // namespace lumen::model::compress
