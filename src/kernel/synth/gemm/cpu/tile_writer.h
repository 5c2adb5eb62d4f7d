// Common code of kernels of register tiles: tasks over tiles of m and n, tiles at the ends, and the epilogue over a
// task's private sums. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp and dot_matrix_test.cpp.
#pragma once

#include <functional>
#include <string>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

class TileWriter {
 protected:
  TileWriter(const graph::Graph& g, const DotProblem& p, const TileCut& cut, int lanes)
      : p_(p), w_(g, p, "dot"), b_(w_.b), cut_(cut), lanes_(lanes) {}

  // Writes the kernel; `multiply` writes a task.
  Step write(std::string plan, const std::function<void()>& multiply);
  // Writes code for a tile of full height, and for the last one if that is lower.
  void each_height(Expr m_tile, const std::function<void(int height)>& code);
  // Writes code for a tile of full width, and for the last of a row if that is narrower or, where it `masks`, not full.
  void each_width(Expr n_tile, bool masks, const std::function<void(int vectors, bool masked)>& code);
  // Applies the epilogue to sums in private memory, vector by vector: `place` is the byte of the sum at (m, n) if the
  // task begins at (m0, n0).
  using Place = std::function<Expr(Expr m, Expr m0, Expr n, Expr n0)>;
  void finish_sums(BufferId sums, const Place& place);

  const DotProblem& p_;
  DotWriter w_;
  Builder& b_;
  Expr m_first_, m_last_, n_first_, n_last_;  // tiles of this task
  Expr outer_;

 private:
  void each_end(Expr tile, int64_t tiles, bool differs, const std::function<void()>& whole,
                const std::function<void()>& last);
  const TileCut& cut_;
  const int lanes_;
};

}  // namespace lumen::synth
