// A packed weight on its way to panels that lanes unpack it into: some stages of K of a tile's rows at once, copied
// asynchronously as they lie in memory, to two buffers in turn. Who unpacks reads shared memory and waits for no other.
// Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class WeightStages {
 public:
  struct Plan {
    int64_t stage_k = 0, together = 0;  // elements of a stage; stages of a run, which is copied at once
    int64_t slices = 1;                 // of K that a block's lanes go through at one time
    WeightCopies::Shape copies;
    int64_t bytes() const { return 2 * slices * copies.stage_bytes + 16; }
  };
  // Runs of `unrolled` stages, or several times as many, for tiles of `rows` rows; of `least_together`, so that a run
  // has come before the one before it is unpacked. Nothing where blocks cannot be copied so, or K is no whole number of
  // stages.
  static std::optional<Plan> plan(const DotProblem& p, int64_t stage_k, int64_t unrolled, int64_t rows, int64_t lanes,
                                  int64_t least_together, size_t load = 1);

  // In the code of a block; enter() before all else.
  WeightStages(DotWriter& w, const DotProblem& p, const Plan& plan);
  void enter(Expr n0) { copies_.enter(n0, {}); }
  void enter_slice(Expr slice) { slice_ = slice; }  // in a lane loop, before all else, where there are several

  // In lane loops, among the copies of a group. Before a tile: the run of stage `from`, and the one behind it. Then
  // with each stage but the first: where a run begins, the next one. Stages end at `to`.
  void begin_first(Expr lane, Expr from, Expr to);
  void begin_next(Expr lane, Expr stage, Expr from, Expr to);
  // The blocks from that on which holds element k of a row of the tile, `further` bytes behind their place; the last
  // `hidden` bytes may not be read.
  void enter_block(Unpack& cursor, Expr row, Expr k, int64_t blocks = 1, Expr further = {}, int64_t hidden = 0);

 private:
  void begin(Expr lane, Expr run, Expr to);
  Expr number(Expr run) const;  // of the buffer that it lies in

  const DotProblem& p_;
  Plan plan_;
  WeightCopies copies_;
  Builder& b_;
  Expr slice_;
};

}  // namespace lumen::synth
