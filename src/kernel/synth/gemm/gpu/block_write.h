// Stores a tile's sums (block_product.h): through the epilogue into the result, or unchanged if a later step adds
// parts. Lanes that hold short runs of a row exchange them first, so that each writes sixteen bytes: a store takes time
// for each memory line it touches. If the epilogue reads as much data per sum, lanes exchange the sums instead, and
// read sixteen bytes as well. Proved by tests/kernel/synth/gemm/block_write_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

class BlockWrite {
 public:
  // `fast`: fast math for maps of sums of rounded factors, which have fewer digits themselves.
  BlockWrite(DotWriter& w, const DotProblem& p, BlockProduct& product, Builder::FastMath fast)
      : w_(w), b_(w.b), p_(p), product_(product), fast_(std::move(fast)) {}

  // In lane loops. Writes the tile with this first row and column; call it after enter_outer.
  void result(Expr lane, Expr m0, Expr n0);
  // The same for a part of K: rows as long as the result's, from row `row0` of `partial` on.
  void part(Expr lane, Expr m0, Expr n0, BufferId partial, Expr row0);
  // A partial tile as a whole, the `number`th in `partial`.
  void partial_tile(Expr lane, BufferId partial, Expr number);

 private:
  // Output at a row and a column: finish() computes it (at a clamped position if they do not exist), store() writes it.
  struct Sink {
    std::function<Expr(Expr sums, Expr m, Expr n, Expr count, int64_t beside)> finish;  // n: a multiple of `beside`
    std::function<void(Expr out, Expr m, Expr n, Expr count, int align)> store;
    int64_t bytes = 4;     // of a number
    bool aligned = false;  // sixteen bytes of neighbours are aligned in memory
    bool reads = false;    // finish reads along n
    bool whole_m = true, whole_n = true;
    int64_t rows = 0, columns = 0;  // that exist
  };
  // Stores plain sums of so many rows and columns, from row `row0` of `partial` on.
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
