// What kernels of register tiles write alike: tasks over tiles of m and n, tiles at the ends, and the epilogue over the
// private sums of a task. Proved by tests/kernel/synth/gemm/dot_tile_test.cpp and dot_matrix_test.cpp.
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

  // The kernel; `multiply` writes a task.
  Step write(std::string plan, const std::function<void()>& multiply);
  // Code for a tile of full height, and for the last where that is lower.
  void each_height(Expr m_tile, const std::function<void(int height)>& code);
  // Code for a tile of full width, and for the last of a row where that is narrower or, where it `masks`, not full.
  void each_width(Expr n_tile, bool masks, const std::function<void(int vectors, bool masked)>& code);
  // Sums in private memory go through the epilogue, vector by vector: `place` is the byte of the one at (m, n) where
  // the task begins at (m0, n0).
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
