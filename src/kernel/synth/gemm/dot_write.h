// What every dot kernel writes alike: its parameters, reads of operands through their strides, and the epilogue on a
// vector of finished sums. Knows nothing of tiles. Proved by tests/kernel/synth/gemm/dot_*_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "kernel/loop/names.h"
#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/step/step.h"
#include "kernel/synth/step/step_builder.h"

namespace lumen::synth {

// `at` moved along indices, slowest first, whose digits `number` counts: by a load's strides.
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

  // The outer indices of a task: element offsets of every load, and of the result. Kept for reads and the epilogue.
  void enter_outer(Expr flat);
  // The same in the code of a block, which may not fail: check_pick, in a lane loop, says what it would have said.
  void enter_outer_of_block(Expr flat);
  void check_pick();
  // Writes `body`; where rows come in blocks, or may pick nothing, only for a row m that exists.
  void where_row(Expr m, const std::function<void()>& body);
  // `body` where a condition holds; always, where there is none.
  void where(Expr condition, const std::function<void()>& body) {
    condition.exists() ? b.branch(condition, body) : body();
  }
  // Whether rows as they come may pick nothing. Their results are written by a step before.
  bool leaves_rows_out() const;
  void where_left_out(const std::function<void()>& body) { b.branch(picked_ < i64(0), body); }
  // Tiles of so many rows: the number given, or fewer where the block has fewer rows.
  Expr used_tiles(Expr tiles, int64_t height);
  // The first row of an outer index in what a step before made of a, which has `rows` for each.
  Expr laid_row(Expr outer, int64_t rows) { return first_.exists() ? first_ : outer * rows; }
  // Whether copies of what a load reads may begin before the kernels before have ended: nothing of the program writes
  // it, and no integers in memory say where it lies. Then its param is constant from now on.
  bool hold_constant(size_t load);
  Expr run() const { return count_; }                    // of runs: elements of K
  Expr base(size_t load) const { return bases_[load]; }  // elements
  BufferId buffer(size_t load) const { return buffers_[load]; }
  BufferId result() const { return result_; }

  // `lanes` numbers of a load from element `at`, `stride` elements apart; only the first `count` (-1: all) exist.
  // Numbers of any kind of load, in its own scalar type; f32 when packed. `at` is a multiple of `beside`.
  Expr read(size_t load, Expr at, int64_t stride, int lanes, Expr count, int64_t beside = 1);
  Expr read_f32(size_t load, Expr at, int64_t stride, int lanes, Expr count);
  // .. in the type of the sums.
  Expr read_factor(size_t load, Expr at, int64_t stride, int lanes, Expr count);

  // Asks for the lines of so many bytes of a load, `ahead` bytes behind `byte`, which need not exist.
  void ask_for(size_t load, Expr byte, int64_t ahead, int64_t bytes, loop::Cache into);

  // How far row m of a load, or of the result, lies behind its first: by digits, where m counts over several indices.
  Expr row_of(size_t load, Expr m);
  Expr row_of_result(Expr m);
  Expr sum_of(size_t load, Expr k);  // .. the number k of what is summed

  // Sums at (m, n .. n + lanes): what the maps make of them, and its way into the result (of rows that are not sorted).
  // `out` may be words that hold numbers beside each other. `beside`: n is a multiple of it.
  Expr finished(Expr sums, Expr m, Expr n, Expr count, int64_t beside = 1);
  // .. what all of them make, and the contraction itself.
  using MapValues = std::map<graph::ValueId, Expr>;
  MapValues map_values(Expr sums, Expr m, Expr n, Expr count, int64_t beside = 1);
  // Whether the maps read numbers that lie beside each other along n.
  bool reads_along_n() const;
  void put(Expr out, Expr m, Expr n, Expr count, int align);
  // Both, for any problem.
  void finish_vector(Expr sums, Expr m, Expr n, Expr count);
  int epilogue_nodes() const { return epilogue_nodes_; }

  Step step(std::string plan);     // what prepares
  Step product(std::string plan);  // what multiplies

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
