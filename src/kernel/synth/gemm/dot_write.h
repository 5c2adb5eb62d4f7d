// Common code of all dot kernels: parameters, reads of operands through their strides, and the epilogue on a vector of
// finished sums. Independent of tiles. Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"
#include "kernel/synth/step/step_builder.h"

namespace lumen::synth {

// Element `at` of a load, advanced to position `number` in the index space of `indices` (slowest first).
Expr moved(Expr at, Expr number, const std::vector<DotIndex>& indices, size_t load);

class DotWriter : public KernelParams {
 public:
  DotWriter(const graph::Graph& g, const DotProblem& p, std::string name);

  Builder b;
  Builder& builder() override { return b; }
  BufferId value(graph::ValueId v, bool written) override;
  BufferId scratch(int number, int64_t bytes, bool written) override;

  Expr i64(int64_t x) { return b.i64(x); }
  Expr zero(int lanes) { return b.constant({}, {problem_.sum, lanes}); }  // of sums

  // Further parameters, before the body begins.
  BufferId scratch_param(std::string name, int number, int64_t bytes, bool written);

  // Enters the outer indices of a task: keeps element offsets of every load and of the result for reads and the
  // epilogue.
  void enter_outer(Expr flat);
  // The same in the code of a block, which may not fail: check_pick() reports its errors later, in a lane loop.
  void enter_outer_of_block(Expr flat);
  void check_pick();
  // Writes `body`; if rows come in blocks, or may pick nothing, only for a row m that exists.
  void where_row(Expr m, const std::function<void()>& body);
  // Writes `body` under a condition, or unconditionally if there is none.
  void where(Expr condition, const std::function<void()>& body) {
    condition.exists() ? b.branch(condition, body) : body();
  }
  // Whether unsorted rows may pick nothing. An earlier step writes their results.
  bool leaves_rows_out() const;
  void where_left_out(const std::function<void()>& body) { b.branch(picked_ < i64(0), body); }
  // Number of tiles of this height: `tiles`, or fewer if the block has fewer rows.
  Expr used_tiles(Expr tiles, int64_t height);
  // First row of an outer index in the copy of a that an earlier step made, which has `rows` for each.
  Expr laid_row(Expr outer, int64_t rows) { return first_.exists() ? first_ : outer * rows; }
  // Whether copies of a load may begin before the previous kernels have ended: the program never writes it, and no
  // integers in memory select its address. If so, its param is constant from now on.
  bool hold_constant(size_t load);
  Expr run() const { return count_; }                    // elements of K in a run
  Expr base(size_t load) const { return bases_[load]; }  // elements
  BufferId buffer(size_t load) const { return buffers_[load]; }
  BufferId result() const { return result_; }

  // Reads `lanes` numbers of a load from element `at`, `stride` elements apart; only the first `count` (-1: all) exist.
  // Any kind of load, in its own scalar type; f32 if packed. `at` is a multiple of `beside`.
  Expr read(size_t load, Expr at, int64_t stride, int lanes, Expr count, int64_t beside = 1);
  Expr read_f32(size_t load, Expr at, int64_t stride, int lanes, Expr count);
  // .. in the type of the sums.
  Expr read_factor(size_t load, Expr at, int64_t stride, int lanes, Expr count);

  // Prefetches `bytes` bytes of a load, `ahead` bytes after `byte`; they need not exist.
  void ask_for(size_t load, Expr byte, int64_t ahead, int64_t bytes, loop::Cache into);

  // Offset of row m of a load, or of the result, from the first row: by digits if m counts over several indices.
  Expr row_of(size_t load, Expr m);
  Expr row_of_result(Expr m);
  Expr sum_of(size_t load, Expr k);  // .. of the k-th term of the sum

  // finished(): the maps applied to sums at (m, n .. n + lanes); put(): stores that into the result (rows not sorted).
  // `out` may be words of adjacent numbers. `beside`: n is a multiple of it.
  Expr finished(Expr sums, Expr m, Expr n, Expr count, int64_t beside = 1);
  // .. the values of all maps, and of the contraction itself.
  using MapValues = std::map<graph::ValueId, Expr>;
  MapValues map_values(Expr sums, Expr m, Expr n, Expr count, int64_t beside = 1);
  // Whether the maps read adjacent numbers along n.
  bool reads_along_n() const;
  void put(Expr out, Expr m, Expr n, Expr count, int align);
  // finished() and put(), for any problem.
  void finish_vector(Expr sums, Expr m, Expr n, Expr count);
  int epilogue_nodes() const { return epilogue_nodes_; }

  Step step(std::string plan);     // of a kernel that prepares
  Step product(std::string plan);  // of the kernel that multiplies

 private:
  const graph::Graph& graph_;
  const DotProblem& problem_;
  std::vector<BufferId> buffers_;  // by load; -1: none
  BufferId result_ = -1;
  std::vector<Argument> arguments_;
  std::vector<Expr> bases_;
  Expr result_base_;
  int epilogue_nodes_ = 0;
  void enter_picked();
  void finish_row(Expr sums, Expr m, Expr n, Expr count);
  void add_digit(const DotIndex& index, Expr digit);
  Expr beside_sums(size_t load, Expr m, Expr n, int lanes, Expr count, int64_t beside);
  Expr along(const DotIndex& whole, const std::vector<DotIndex>& joint, Expr number,
             const std::function<int64_t(const DotIndex&)>& stride);
  BufferId order_ = -1, table_ = -1;
  Expr block_, picked_;
  Expr first_, count_;  // rows of the block, or of the run
};

}  // namespace lumen::synth
