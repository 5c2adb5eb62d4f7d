// What every dot kernel writes alike: its parameters, reads of operands through their strides, and the epilogue on a
// vector of finished sums. Knows nothing of tiles. Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "kernel/loop/build.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"

namespace lumen::synth {

class DotWriter {
 public:
  DotWriter(const graph::Graph& g, const DotProblem& p, std::string name);

  loop::Builder b;

  loop::ValueId i64(int64_t x) { return b.i64(x); }
  loop::ValueId add(loop::ValueId x, loop::ValueId y) { return b.add(x, y); }
  loop::ValueId scaled(loop::ValueId x, int64_t factor) { return b.mul(x, b.i64(factor)); }
  loop::ValueId min(loop::ValueId x, loop::ValueId y) { return b.op(ScalarOp::min_, x, y); }
  loop::ValueId zero(int lanes) { return b.real(0, {Scalar::f32, lanes}); }

  // Further parameters, before the body begins.
  loop::BufferId scratch_param(std::string name, int number, int64_t bytes, bool written);

  // The outer indices of a task: element offsets of every load, and of the result. Kept for reads and the epilogue.
  void enter_outer(loop::ValueId flat);
  // The same in the code of a block, which may not fail: check_pick, in a lane loop, says what it would have said.
  void enter_outer_of_block(loop::ValueId flat);
  void check_pick();
  // Writes `body`; where rows come in blocks, only for a row m that exists.
  void where_row(loop::ValueId m, const std::function<void()>& body);
  // Tiles of so many rows: the number given, or fewer where the block has fewer rows.
  loop::ValueId used_tiles(loop::ValueId tiles, int64_t height);
  // The first row of an outer index in what a step before made of a, which has `rows` for each.
  loop::ValueId laid_row(loop::ValueId outer, int64_t rows) { return first_ >= 0 ? first_ : scaled(outer, rows); }
  // Whether copies of what a load reads may begin before the kernels before have ended: nothing of the program writes
  // it, and no integers in memory say where it lies. Then its param is constant from now on.
  bool hold_constant(size_t load);
  loop::ValueId run() const { return count_; }                    // of runs: elements of K
  loop::ValueId base(size_t load) const { return bases_[load]; }  // elements
  loop::BufferId buffer(size_t load) const { return buffers_[load]; }
  loop::BufferId result() const { return result_; }

  // `lanes` numbers of a load from element `at`, `stride` elements apart; only the first `count` (-1: all) exist.
  // Numbers of any kind of load, in its own scalar type; f32 when packed.
  loop::ValueId read(size_t load, loop::ValueId at, int64_t stride, int lanes, loop::ValueId count);
  loop::ValueId read_f32(size_t load, loop::ValueId at, int64_t stride, int lanes, loop::ValueId count);

  // Sums at (m, n .. n + lanes): what the maps make of them, and its way into the result (of rows that are not sorted).
  // `out` may be words that hold numbers beside each other.
  loop::ValueId finished(loop::ValueId sums, loop::ValueId m, loop::ValueId n, loop::ValueId count);
  void put(loop::ValueId out, loop::ValueId m, loop::ValueId n, loop::ValueId count, int align);
  // Both, for any problem.
  void finish_vector(loop::ValueId sums, loop::ValueId m, loop::ValueId n, loop::ValueId count);
  int epilogue_nodes() const { return epilogue_nodes_; }

  Step step(std::string plan);

 private:
  const graph::Graph& graph_;
  const DotProblem& problem_;
  std::vector<loop::BufferId> buffers_;  // by load; -1: none
  loop::BufferId result_ = -1;
  std::vector<Argument> arguments_;
  std::vector<loop::ValueId> bases_;
  loop::ValueId result_base_ = -1;
  int epilogue_nodes_ = 0;
  void enter_picked();
  void finish_row(loop::ValueId sums, loop::ValueId m, loop::ValueId n, loop::ValueId count);
  void add_digit(const DotIndex& index, loop::ValueId digit);
  loop::BufferId order_ = -1, table_ = -1;
  loop::ValueId block_ = -1, picked_ = -1;
  loop::ValueId first_ = -1, count_ = -1;  // rows of the block, or of the run
};

}  // namespace lumen::synth
