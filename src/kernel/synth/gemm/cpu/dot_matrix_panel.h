// The panel of a matrix kernel: b's rows in the layout of the dot instruction, in a task's private memory. A vector
// holds row.k neighbours along K of each of `lanes` rows of b:
//
//   tile, then quad (row.k elements of K), then vector of the tile, then row of b, then the row.k elements
//
// For the matrix unit, whose tiles are contiguous in memory: tile, vector, quad, row of b, the row.k elements; or, if
// the weight is its first factor: tile, vector, elements of K of an instruction, row of b, those elements. With
// integers, scales and offsets are stored with it: group, then row of b. Each task fills it per tile and stage of K;
// or, if tasks share panels (MatrixPlan::lays_panels), an earlier step fills all of them in the order outer index, tile
// of n, stage. Proved by tests/kernel/synth/gemm/dot_matrix_test.cpp.
#pragma once

#include <functional>
#include <memory>

#include "kernel/synth/gemm/cpu/dot_matrix_plan.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

// Scratch numbers of shared panels; -1: none.
struct LaidPanels {
  int codes = -1, scales = -1, offsets = -1;
};
// Declares them and adds the step that writes them.
LaidPanels write_panels(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                        Synthesis& out);

class MatrixPanel {
 public:
  // Allocates in the current region, that of a task.
  MatrixPanel(DotWriter& w, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m);
  // Declares parameters for panels in scratch. Call begin_task() before anything is filled.
  MatrixPanel(DotWriter& w, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m, const LaidPanels& laid,
              bool written);
  void begin_task();
  // With panels in scratch: selects that of an outer index, tile and stage.
  void enter(Expr outer, Expr tile, Expr stage);

  // Fills tiles first .. last - 1, elements k0 .. k0 + count - 1 of K; of panels in scratch the current tile.
  void fill(Expr first, Expr last, Expr k0, Expr count);

  BufferId codes() const { return codes_; }
  BufferId scales() const { return scales_; }
  BufferId offsets() const { return offsets_; }
  int64_t tile_bytes() const { return t_.stage_k * t_.tile_columns() * t_.element_bytes(); }
  int64_t quad_bytes() const { return (t_.tile ? t_.lanes() : t_.tile_columns()) * t_.word_bytes(); }
  int64_t vector_bytes() const { return t_.lanes() * t_.word_bytes() * (t_.tile ? t_.stage_k / t_.row.k : 1); }
  int64_t group_bytes() const { return (laid() ? 1 : t_.filled_tiles()) * t_.tile_columns() * 4; }  // of scales
  bool laid() const { return laid_; }
  // Where the current panel begins among codes and numbers of groups, in bytes; 0 for a task's own panel.
  Expr codes_from() const { return codes_from_; }
  Expr groups_from() const { return groups_from_; }

 private:
  void unpack_row(Expr to, Expr row, Expr column, Expr k0, Expr count);
  void unpack_run(Expr to, Expr column, Expr block, Expr k, int64_t count, int64_t padded);
  void ask_ahead(Expr row, Expr k0);
  void store(Expr v, Expr to, Expr k, int64_t position);
  void transpose_rows(Expr to, Expr count);
  void join_rows(Expr n, Expr to, Expr k0, Expr count);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  const MatrixPlan& t_;
  const machine::Machine& m_;
  int value_lanes_;
  bool laid_ = false, along_n_ = false;
  Expr codes_from_, groups_from_;
  std::unique_ptr<Unpack> cursor_;
  BufferId codes_ = -1, scales_ = -1, offsets_ = -1, rows_ = -1;
};

}  // namespace lumen::synth
