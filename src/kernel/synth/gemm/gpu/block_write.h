// The way of a tile's sums (block_product.h) into memory: through the epilogue into the result, or as they are where a
// step behind adds them. Lanes that hold short runs of a row pass them among themselves first, so that each writes
// sixteen bytes: a store takes as long as the lines of memory it touches. Proved by
// tests/kernel/synth/gemm/block_write_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

class BlockWrite {
 public:
  BlockWrite(DotWriter& w, const DotProblem& p, BlockProduct& product) : w_(w), b_(w.b), p_(p), product_(product) {}

  // In lane loops. The tile whose first row and column these are, after enter_outer.
  void result(loop::ValueId lane, loop::ValueId m0, loop::ValueId n0);
  // The same of a part of K: rows of the result, as long, from row `row0` of `partial` on.
  void part(loop::ValueId lane, loop::ValueId m0, loop::ValueId n0, loop::BufferId partial, loop::ValueId row0);
  // A tile of a segment as a whole, the `number`th in `partial`.
  void segment(loop::ValueId lane, loop::BufferId partial, loop::ValueId number);

 private:
  using Value = loop::ValueId;
  // What is written at a row and a column: computed where they exist (or instead where others do), then stored.
  struct Sink {
    std::function<Value(Value sums, Value m, Value n, Value count)> finish;
    std::function<void(Value out, Value m, Value n, Value count, int align)> store;
    int64_t bytes = 4;     // of a number
    bool aligned = false;  // sixteen bytes of neighbours lie so in memory
    bool whole_m = true, whole_n = true;
    int64_t rows = 0, columns = 0;  // that exist
  };
  // Sums as they are, of so many rows and columns, from row `row0` of `partial` on.
  void sums(Value lane, Value m0, Value n0, loop::BufferId partial, Value row0, int64_t rows, int64_t columns);
  void write(Value lane, Value m0, Value n0, const Sink& sink);
  void write_runs(Value lane, Value m0, Value n0, const Sink& sink);
  void write_wide(Value lane, Value m0, Value n0, const Sink& sink, int lanes);

  DotWriter& w_;
  loop::Builder& b_;
  const DotProblem& p_;
  BlockProduct& product_;
};

}  // namespace lumen::synth
