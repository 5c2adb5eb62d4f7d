// Codes of one byte in a product's own epilogue: of maps of its sums, as they lie and transposed, with the largest of
// all numbers, and beside them perhaps the numbers themselves. Lanes write codes as they lie at once; those of the
// transposed matrix pass through shared memory, in which a column's codes lie beside each other. Fields above the
// numbers are supplied (encode/code_fields.h). Equal to the codec bit for bit. Proved by
// tests/kernel/synth/gemm/codes_write_test.cpp.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kernel/synth/encode/code_fields.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/block_write.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/reduce/extreme_parts.h"

namespace lumen::synth {

class CodesWrite {
 public:
  // Adds the steps that come before, and declares parameters: before the kernel's code.
  CodesWrite(DotWriter& w, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, Synthesis& out);
  // Behind the kernel's step.
  void add_last_steps(Synthesis& out) const;

  void begin();  // in the block's code
  // In the block's code, by all its lanes: the tile whose first row and column these are, the `tile`th. `lanes` is a
  // loop over them.
  using Lanes = std::function<void(const std::function<void(Expr lane)>&)>;
  void write(const Lanes& lanes, BlockWrite& sums, Expr m0, Expr n0, Expr tile);

 private:
  struct Extreme {
    graph::ValueId of = -1;
    ExtremeParts parts;
    BufferId lane = -1, waves = -1;  // what a lane has found, and what each wave
  };
  bool is_staged(size_t pass) const { return pass < staged_.size(); }
  void visit(size_t pass, const DotWriter::MapValues& values, Expr m, Expr n, Expr row, Expr column, Expr count,
             int64_t beside);
  Expr code(graph::ValueId cast, Expr x, Expr row, Expr column, bool transposed);
  void write_staged(Expr lane, Expr m0, Expr n0, graph::ValueId cast);
  void fold_extremes(Expr lane);
  void write_extremes(Expr lane, Expr tile);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  const BlockPlan& t_;
  const machine::Machine& m_;
  Builder::FastMath fast_;
  std::map<graph::ValueId, CodeFields> fields_;
  std::map<graph::ValueId, BufferId> blobs_;
  std::vector<graph::DotCodes> staged_;  // those that have a transposed matrix: one at a time passes through
  std::vector<Extreme> extremes_;
  BufferId stage_ = -1;
};

}  // namespace lumen::synth
