// A packed weight on its way to panels that lanes unpack it into: several stages of K of a tile's rows at once, copied
// asynchronously as they lie in memory, to two buffers in turn. Lanes that unpack read shared memory and wait for
// nothing else. Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <optional>

#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class WeightStages {
 public:
  struct Plan {
    int64_t stage_k = 0, together = 0;  // elements of a stage; stages of a run, which is copied at once
    int64_t slices = 1;                 // of K that a block's lanes process at the same time
    WeightCopies::Shape copies;
    int64_t bytes() const { return 2 * slices * copies.stage_bytes + 16; }
  };
  // Runs of `unrolled` stages, or a multiple, for tiles of `rows` rows; of at least `least_together`, so that a run has
  // arrived before the previous one is unpacked. nullopt if blocks cannot be copied so, or K is not a whole number of
  // stages.
  static std::optional<Plan> plan(const DotProblem& p, int64_t stage_k, int64_t unrolled, int64_t rows, int64_t lanes,
                                  int64_t least_together, size_t load = 1);

  // In the code of a block; call enter() first.
  WeightStages(DotWriter& w, const DotProblem& p, const Plan& plan);
  void enter(Expr n0) { copies_.enter(n0, {}); }
  void enter_slice(Expr slice) { slice_ = slice; }  // in a lane loop, before all else, if there are several

  // In lane loops, among the copies of a group. begin_first(), before a tile: the run of stage `from`, and the next
  // one. begin_next(), with each stage but the first: where a run begins, the next run. Stages end at `to`.
  void begin_first(Expr lane, Expr from, Expr to);
  void begin_next(Expr lane, Expr stage, Expr from, Expr to);
  // Enters the blocks from that on which holds element k of a row of the tile, shifted by `further` bytes; the last
  // `hidden` bytes may not be read.
  void enter_block(Unpack& cursor, Expr row, Expr k, int64_t blocks = 1, Expr further = {}, int64_t hidden = 0);

 private:
  void begin(Expr lane, Expr run, Expr to);
  Expr number(Expr run) const;  // of the buffer that holds it

  const DotProblem& p_;
  Plan plan_;
  WeightCopies copies_;
  Builder& b_;
  Expr slice_;
};

}  // namespace lumen::synth
