// Common code of kernels for few rows of a: tasks, or waves, that take groups of rows of b, addresses of these rows,
// and storing their sums into the result. Proved by tests/kernel/synth/gemm/dot_rows_test.cpp and dot_integer_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/wave_groups.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

class RowsWriter {
 protected:
  RowsWriter(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m)
      : p_(p), t_(t), m_(m), ahead_(is_read_ahead(p, m) ? m.ahead_bytes : 0), w_(g, p, "dot"), b_(w_.b) {}

  // Writes the kernel: `declare` allocates for a task or wave, `multiply` takes t_.width rows of b from number n on.
  Step write(std::string plan, const std::function<void()>& declare, const std::function<void(Expr n)>& multiply);
  // Start of row n of b, in elements. For a row that does not exist it is the last row, and the result is not stored.
  Expr row_of_b(Expr n) {
    return w_.base(1) + (p_.n.extent % t_.width ? min(n, w_.i64(p_.n.extent - 1)) : n) * p_.n.strides[1];
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
  // Reduces the lanes of sums of row i of a and row j of the group, scales them if `scaled` is given, and stores.
  void finish(Expr n, const std::function<Expr(int i, int j)>& sum,
              const std::function<Expr(Expr total, int j)>& scaled = nullptr);
  bool by_waves() const { return wave_.lane.exists(); }

  const DotProblem& p_;
  RowsPlan t_;
  const machine::Machine& m_;
  const int64_t ahead_;  // bytes; 0: b stays in a cache, or hardware prefetches it
  DotWriter w_;
  Builder& b_;
  WaveGroup wave_;  // whose lanes share K; no lane: this task has all of it
  Expr outer_;

 private:
  void ask_ahead(Expr first, Expr behind, int64_t count, int64_t bytes);
};

}  // namespace lumen::synth
