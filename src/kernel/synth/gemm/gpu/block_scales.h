// Scales that change along K (DotProblem::run_scales), for the sums of a tile: lanes read those of a stage's rows and
// columns while earlier stages are multiplied, and exchange them through shared memory, so that each scale is read from
// memory and decoded once. Proved by tests/kernel/synth/gemm/run_scales_test.cpp.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"

namespace lumen::synth {

class BlockScales {
 public:
  using Side = BlockProduct::Side;
  // In the code of a block; shared memory holds the scales of `places` stages.
  BlockScales(DotWriter& w, const DotProblem& p, BlockProduct& product, int places);

  // Scales that a tile needs on a side: one for each row, or fewer if rows share them; 0: the side has none.
  static int64_t count(const DotProblem& p, const BlockTile& tile, Side side);

  // Selects the tile with this first row and column; call it after enter_outer.
  void enter_tile(Expr m0, Expr n0) { first_ = {m0, n0}; }

  // In lane loops. fetch(): this lane's share of the scales of the stage that begins at `k`; put(): stores them in a
  // place; of(): the scales of this lane's sums, after a barrier.
  std::vector<Expr> fetch(Expr lane, Expr k);
  void put(Expr lane, const std::vector<Expr>& fetched, Expr place);
  BlockProduct::Scales of(Expr lane, Expr place);
  // Keeps what was fetched until the lane's next iteration.
  void hold(const std::vector<Expr>& fetched);
  std::vector<Expr> held();

 private:
  struct OfSide {
    int64_t count = 0, shared = 1;  // numbers of a tile, rows that share one
    BufferId buffer = -1;
    std::vector<BufferId> held;  // f32, of a lane
    int64_t rounds = 0;
  };
  Expr read(Side side, Expr line, Expr k);
  std::vector<Expr> of(Side side, Expr lane, Expr place);
  OfSide& at(Side side) { return sides_[side == Side::a ? 0 : 1]; }

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  BlockProduct& product_;
  std::array<OfSide, 2> sides_;
  std::array<Expr, 2> first_;
};

}  // namespace lumen::synth
