// Activations for a weight that lanes hold (held_product.h): an earlier step rounds them to bf16 and reorders K of each
// row for the instruction, because lanes hold contiguous elements of a weight. Proved by
// tests/kernel/synth/gemm/held/held_product_test.cpp.
#pragma once

#include <vector>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

class HeldRows {
 public:
  static constexpr int64_t kVector = 4;  // elements read at once

  // Position in memory of each place of a unit, counted from the unit's first element.
  static std::vector<int64_t> order(const SkinnyMmaPlan& unit);
  // Elements that are permuted among themselves only; a task takes one such run. Few enough for registers.
  static int64_t run(const SkinnyMmaPlan& unit) { return unit.order.group; }
  static bool can_order(const SkinnyMmaPlan& unit);
  static int64_t bytes(const DotProblem& p) { return p.m.extent * p.k.extent * 2; }
  // The step that writes scratch `number`.
  static Step write(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& unit, int number);
};

}  // namespace lumen::synth
