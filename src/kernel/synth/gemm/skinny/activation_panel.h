// Activations of a streamed product (skinny_mma.h) in the shared memory of a block: copied stage by stage of K from
// what an earlier step has laid out (activation_round.h), so that the sixteen bytes of adjacent lanes' factors are
// adjacent. If the plan needs them, sums over the weight's groups are copied, too. Proved by
// tests/kernel/synth/gemm/skinny_mma_test.cpp.
#pragma once

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/skinny_mma_plan.h"

namespace lumen::synth {

class ActivationPanel {
 public:
  // In the code of a block: allocates shared memory, a panel for each of the plan's buffers. `lines`, `sums`: the
  // laid-out data; `first`: its first row.
  ActivationPanel(DotWriter& w, const SkinnyMmaPlan& t, BufferId lines, BufferId sums, Expr first);

  // In a lane loop: begins this lane's copies of a stage, to panel `number`.
  void begin(Expr lane, Expr stage, Expr number);

  // In lane loops: eight elements of unit `unit` of a stage, for column `column` of an instruction and lane `lane_k` of
  // those that share K.
  Expr vector(Expr number, Expr unit, int tile, int64_t vector, Expr column, Expr lane_k);
  // Sums of a group, for the adjacent columns that a lane holds; `column`: the first.
  Expr sums(Expr number, Expr unit, int64_t group, int tile, Expr column);

 private:
  // Lines of `vector` bytes, `across` of each run; runs of a stage follow each other.
  struct Lines {
    BufferId to = -1, from = -1;
    int64_t runs = 0, all_runs = 0, across = 0, vector = 0;  // of a stage; of all
    int64_t bytes = 0, row_bytes = 0;                        // of a panel; of a row in a run
  };
  void copy(const Lines& lines, Expr lane, Expr stage, Expr number);

  DotWriter& w_;
  Builder& b_;
  const SkinnyMmaPlan& t_;
  Lines lines_, sums_;
  Expr first_;
};

}  // namespace lumen::synth
