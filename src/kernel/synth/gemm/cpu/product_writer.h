// Writes the nest of a schedule (product_schedule.h) around what a kernel does in a task: the loop over tasks, or over
// waves of a grid; outer indices, tiles and columns of a task; tiles at the ends; prefetches; and sums into the result.
// Proved by tests/kernel/synth/gemm/dot_tile_test.cpp, dot_matrix_test.cpp, dot_rows_test.cpp, dot_integer_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/product_schedule.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class ProductWriter {
 protected:
  // Register tiles.
  ProductWriter(const graph::Graph& g, const DotProblem& p, const TileCut& cut, int lanes)
      : p_(p), w_(g, p, "dot"), b_(w_.b), s_(ProductSchedule{}.with(cut, lanes, p)) {}
  // Few rows of a, along K.
  ProductWriter(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m);

  // Writes the kernel; `body` writes a task.
  Step write(std::string plan, const std::function<void()>& body);
  // Writes the kernel of few rows: `declare` allocates for a task or wave, `enter` begins with as many columns as a
  // tile has from number n on, and `multiply` multiplies them with the rows of a slice, one slice after the other.
  Step write(std::string plan, const std::function<void()>& declare, const std::function<void(Expr n)>& enter,
             const std::function<void(Expr n)>& multiply);

  // Writes code for a tile of full height, and for the last one if that is lower.
  void each_height(Expr m_tile, const std::function<void(int height)>& code);
  // Writes code for a tile of full width, and for the last of a row if that is narrower or, where it `masks`, not full.
  void each_width(Expr n_tile, bool masks, const std::function<void(int vectors, bool masked)>& code);
  // Applies the epilogue to sums in private memory, vector by vector: `place` is the byte of the sum at (m, n) if the
  // task begins at (m0, n0).
  using Place = std::function<Expr(Expr m, Expr m0, Expr n, Expr n0)>;
  void finish_sums(BufferId sums, const Place& place);
  // Reduces the lanes of sums of row i of a and column n + j, scales them if `scaled` is given, and stores. Where a
  // task has many such tiles, the sums of a tile are reduced together, each in the same order.
  void finish(Expr n, const std::function<Expr(int i, int j)>& sum,
              const std::function<Expr(Expr total, int j)>& scaled = nullptr);

  // Start of row n of b, in elements. For a row that does not exist it is the last row, and the result is not stored.
  Expr row_of_b(Expr n) {
    return w_.base(1) + (p_.n.extent % s_.vectors ? min(n, w_.i64(p_.n.extent - 1)) : n) * p_.n.strides[1];
  }
  // Call before numbers (or blocks) of b from `first` + `behind` on are read: prefetches those that are read later, in
  // this row or in the following ones. A single row is read in memory order; of several rows each is a stream.
  void ask_ahead_of_numbers(Expr first, Expr behind, int64_t count) {
    ask_ahead(first, behind, count, scalar_bytes(p_.loads[1].scalar));
  }
  void ask_ahead_of_blocks(Expr first, Expr behind, int64_t count) {
    ask_ahead(first, behind, count, p_.loads[1].format->block_bytes);
  }
  std::unique_ptr<Unpack> cursor_of_b() {
    const DotLoad& load = p_.loads[1];
    return std::make_unique<Unpack>(b_, *load.format, w_.buffer(1), load.rows, load.columns);
  }
  bool by_waves() const { return wave_.lane.exists(); }

  const DotProblem& p_;
  DotWriter w_;
  Builder& b_;
  Expr m_first_, m_last_, n_first_, n_last_;  // of this task: tiles, or columns (is_by_column)
  Expr outer_;
  // Lanes of a wave share K; no lane: this task has all of it. Waves without a group of their own repeat the last one
  // and must not write.
  struct Wave {
    Expr lane, group, exists;
  };
  Wave wave_;

 private:
  void enter_task(Expr task);
  std::vector<Expr> folded_apart(const std::function<Expr(int i, int j)>& sum,
                                 const std::function<Expr(Expr total, int j)>& scaled);
  std::vector<Expr> folded_together(const std::function<Expr(int i, int j)>& sum,
                                    const std::function<Expr(Expr total, int j)>& scaled);
  void each_wave(const std::function<void()>& body);
  void each_end(Expr tile, int64_t tiles, bool differs, const std::function<void()>& whole,
                const std::function<void()>& last);
  void ask_ahead(Expr first, Expr behind, int64_t count, int64_t bytes);

  const ProductSchedule s_;
  int wave_lanes_ = 1;
  int64_t ahead_ = 0;  // bytes; 0: b stays in a cache, or hardware prefetches it
  loop::Cache ahead_into_{};
};

}  // namespace lumen::synth
