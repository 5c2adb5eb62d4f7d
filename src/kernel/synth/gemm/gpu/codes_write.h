// One-byte codes in a product's own epilogue: of maps of its sums, straight and transposed, with the maximum of all
// numbers, and optionally the numbers themselves. The sums go through shared memory, a slab of columns at a time. One
// short loop then handles the whole tile: unrolled over the registers of each lane the code would exceed the
// instruction cache of a multiprocessor. Lanes also read and write contiguous runs. Codes of the transposed matrix go
// through shared memory, too. Fields above the element level are supplied (encode/code_fields.h). Equal to the codec
// bit for bit. Proved by tests/kernel/synth/gemm/gpu/product_codes_test.cpp.
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
  // Adds the earlier steps and declares parameters; call it before the kernel's code.
  CodesWrite(DotWriter& w, const DotProblem& p, const BlockPlan& t, const machine::Machine& m, Synthesis& out);
  // Call it after the kernel's step is added.
  void add_last_steps(Synthesis& out) const;

  void begin();  // in the block's code
  // In the block's code, for all its lanes: writes the tile with this first row and column, number `tile`. `lanes` is a
  // loop over them.
  using Lanes = std::function<void(const std::function<void(Expr lane)>&)>;
  void write(const Lanes& lanes, BlockProduct& product, Expr m0, Expr n0, Expr tile);

 private:
  struct Extreme {
    graph::ValueId of = -1;
    ExtremeParts parts;
    BufferId lane = -1, waves = -1;  // found by a lane, and by each wave
  };
  void put_sums(Expr lane, BlockProduct& product, Expr first);
  void encode_vectors(Expr lane, Expr m0, Expr n0);
  void encode_vector(Expr m, Expr n, Expr row, Expr column);
  bool are_alike(const graph::DotCodes& c) const;
  Expr code(graph::ValueId cast, Expr x, Expr m, Expr n, bool transposed);
  void write_transposed(Expr lane, Expr m0, Expr n0);
  void find_extremes(const Lanes& lanes, Expr tile);
  // `body` for rows and columns that exist.
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
