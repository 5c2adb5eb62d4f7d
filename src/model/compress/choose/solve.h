// Solves multiple-choice problems: the least score within bytes, bits per weight or time, or the fewest bytes within a
// score. Parts that pairs connect are looked at whole; parts are joined by dynamic programming over those of their
// points that bounds leave (the dual of the budget, Dyer's and Zemel's), so that a choice is proved to be the best one,
// and where a limit of work is met, says how far it may be from it. Same problem, same choice. Proved by
// tests/model/compress/choose/solve_test.cpp against all choices of small problems.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/compress/choose/budget.h"
#include "model/compress/choose/problem.h"

namespace lumen::model {

struct ChoiceOptions {
  bool fast = false;                       // no dynamic programming: the dual's choice, mended; with its gap
  int64_t assignments = int64_t{1} << 22;  // of a part, up to which all are looked at
  size_t states = size_t{1} << 23;         // of the dynamic programming, of 24 bytes each
};

// Error (user) when nothing fits: says the least that is possible.
Choice choose(const ChoiceProblem& problem, const Budget& budget, const ChoiceOptions& options = {});

// What can be had: no point has both fewer bytes and a lower score than another. Budgets of a point's bytes give its
// choice.
struct FrontPoint {
  int64_t bytes = 0;
  double bits = 0, score = 0;
};
struct ChoiceFront {
  std::vector<FrontPoint> points;  // by rising bytes
  // All points there are, or those that `most` left of them; otherwise only those on the lower convex hull, between
  // which there may be others.
  bool exact = false;
};
// At most about `most` points, the ends among them.
ChoiceFront choice_front(const ChoiceProblem& problem, size_t most = 400, const ChoiceOptions& options = {});

}  // namespace lumen::model
