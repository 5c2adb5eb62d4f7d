// The way of a tile's sums (block_product.h) into memory: through the epilogue into the result, or as they are where a
// step behind adds them. Lanes that hold short runs of a row pass them among themselves first, so that each writes
// sixteen bytes: a store takes as long as the lines of memory it touches. Where the epilogue reads as much beside them,
// they pass on sums, and read sixteen bytes as well. Proved by
// tests/kernel/synth/gemm/block_write_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

class BlockWrite {
 public:
  // `fast`: what maps behind sums of rounded factors may compute with, which have fewer digits themselves.
  BlockWrite(DotWriter& w, const DotProblem& p, BlockProduct& product, Builder::FastMath fast)
      : w_(w), b_(w.b), p_(p), product_(product), fast_(std::move(fast)) {}

  // In lane loops. The tile whose first row and column these are, after enter_outer.
  void result(Expr lane, Expr m0, Expr n0);
  // The same of a part of K: rows of the result, as long, from row `row0` of `partial` on.
  void part(Expr lane, Expr m0, Expr n0, BufferId partial, Expr row0);
  // A partial tile as a whole, the `number`th in `partial`.
  void partial_tile(Expr lane, BufferId partial, Expr number);

 private:
  // What is written at a row and a column: computed where they exist (or instead where others do), then stored.
  struct Sink {
    std::function<Expr(Expr sums, Expr m, Expr n, Expr count, int64_t beside)> finish;  // n: a multiple of `beside`
    std::function<void(Expr out, Expr m, Expr n, Expr count, int align)> store;
    int64_t bytes = 4;     // of a number
    bool aligned = false;  // sixteen bytes of neighbours lie so in memory
    bool reads = false;    // finish reads along n
    bool whole_m = true, whole_n = true;
    int64_t rows = 0, columns = 0;  // that exist
  };
  // Sums as they are, of so many rows and columns, from row `row0` of `partial` on.
  void sums(Expr lane, Expr m0, Expr n0, BufferId partial, Expr row0, int64_t rows, int64_t columns);
  void write(Expr lane, Expr m0, Expr n0, const Sink& sink);
  void write_runs(Expr lane, Expr m0, Expr n0, const Sink& sink);
  void write_wide(Expr lane, Expr m0, Expr n0, const Sink& sink, int lanes);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  BlockProduct& product_;
  Builder::FastMath fast_;
};

}  // namespace lumen::synth
