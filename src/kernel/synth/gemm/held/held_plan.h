// Plans for products with a packed weight that lanes hold: rows of the weight are rows of the instruction, in
// registers; rows of activations are its columns, in shared memory. Proved by
// tests/kernel/synth/gemm/held/held_product_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"
#include "kernel/synth/gemm/skinny/weight_stages.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

struct HeldPlan {
  static constexpr int64_t kStage = 64;     // elements of K
  static constexpr int64_t kLeastPart = 4;  // stages of a part of K

  BlockTile tile;      // down: rows of the weight; across: rows of activations
  SkinnyMmaPlan unit;  // how lanes share K of a row, and how its codes become factors
  WeightStages::Plan weights;
  int64_t ahead = 2;   // stages copied ahead
  int64_t slices = 1;  // of a block's K (sliced-K): each has as many lanes as a tile; sums are added at the end
  int64_t stages = 1, splits = 1, split_stages = 1;  // of K; a later step adds the parts
  double cycles = 0;                                 // estimate, of the whole machine

  int64_t lanes() const { return slices * tile.lanes(); }
  // Panels of activations, for each slice: one is read, and products of the previous stage may still read theirs.
  int64_t panels() const { return ahead + 2; }
  int64_t steps() const { return kStage / tile.row->k; }  // of a stage
  int64_t unit_stages() const { return std::max<int64_t>(unit.order.unit / kStage, 1); }
  // Stages per iteration of the loop: registers of one are read while those of the other are written.
  int64_t unrolled() const { return std::max<int64_t>(unit_stages(), 2); }
  int64_t weight_tiles(const DotProblem& p) const { return (p.n.extent + tile.m() - 1) / tile.m(); }
  int64_t row_tiles(const DotProblem& p) const { return (p.m.extent + tile.n() - 1) / tile.n(); }
  int64_t blocks(const DotProblem& p) const { return weight_tiles(p) * row_tiles(p) * splits; }
};

// The model's choice first. Empty if the machine has no such instruction, lanes cannot share the weight's codes as they
// lie in memory, or K is not a whole number of iterations.
std::vector<HeldPlan> choose_held(const DotProblem& p, const machine::Machine& m, bool exact);

std::string describe(const HeldPlan& t, const DotProblem& p);

}  // namespace lumen::synth
