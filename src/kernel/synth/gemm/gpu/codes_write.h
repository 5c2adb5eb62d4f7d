// Codes of one byte in a product's own epilogue: of maps of its sums, as they lie and transposed, with the largest of
// all numbers, and beside them perhaps the numbers themselves. A slab of columns at a time the sums go through shared
// memory, so that one short loop does for all of a tile what would be a long text for the registers of each lane (more
// than a multiprocessor keeps of instructions), and lanes read and write runs that lie beside each other; codes of the
// transposed matrix go through it as well. Fields above the numbers are supplied (encode/code_fields.h). Equal to the
// codec bit for bit. Proved by tests/kernel/synth/gemm/gpu/product_codes_test.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "kernel/synth/encode/code_fields.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/gpu/codes_stage.h"
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
  void write(const Lanes& lanes, BlockProduct& product, Expr m0, Expr n0, Expr tile);

 private:
  struct Extreme {
    graph::ValueId of = -1;
    ExtremeParts parts;
    BufferId lane = -1, waves = -1;  // what a lane has found, and what each wave
  };
  void put_sums(Expr lane, BlockProduct& product, Expr first);
  void encode_vectors(Expr lane, Expr m0, Expr n0);
  void encode_vector(Expr m, Expr n, Expr row, Expr column);
  bool are_alike(const graph::DotCodes& c) const;
  Expr code(graph::ValueId cast, Expr x, Expr m, Expr n, bool transposed);
  void write_transposed(Expr lane, Expr m0, Expr n0);
  void find_extremes(const Lanes& lanes, Expr tile);
  // What is of rows and columns that exist.
  void where_inside(Expr m, Expr n, const std::function<void()>& body);

  DotWriter& w_;
  Builder& b_;
  const DotProblem& p_;
  const BlockPlan& t_;
  const machine::Machine& m_;
  CodesStage stage_;
  Builder::FastMath fast_;
  std::map<graph::ValueId, CodeFields> fields_;
  std::map<graph::ValueId, BufferId> blobs_;
  std::map<graph::ValueId, BufferId> transposed_;  // by cast: codes of a slab
  std::vector<Extreme> extremes_;
  BufferId sums_ = -1;
  Scalar of_sums_ = Scalar::f32;
};

}  // namespace lumen::synth
