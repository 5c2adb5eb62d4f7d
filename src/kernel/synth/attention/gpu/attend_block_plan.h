// How a block of lanes takes an attention: tiles of lines that belong to it (queries, or keys where their gradient is
// wanted), tiles of the others that it walks, and the instruction that multiplies them. Knows machines, not graphs.
#pragma once

#include <optional>
#include <string>

#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

// From how many blocks, and widths of keys and values together, on two groups of lanes are worth having in a block.
struct AttendEnough {
  int64_t blocks = 128, width = 224;
};

// What must be kept and computed.
struct AttendProblem {
  int64_t own = 1, walk = 1;     // lines there are
  int64_t heads = 1;             // independent problems
  std::vector<int64_t> owned;    // widths of the panels of own lines
  std::vector<int64_t> walked;   // of the panels of walked lines
  std::vector<int64_t> results;  // of the sums of own lines; each needs a panel of walked lines, transposed
  std::vector<int64_t> apart;    // of those of results that read walked lines no product reads
  int products = 1, sources = 1;
  bool rows_meet = false;              // lanes that share an own line must agree on something in each tile
  std::optional<AttendEnough> enough;  // streams may take two groups of lanes, and wide tiles of walked lines
};

struct AttendPlan {
  const machine::Machine* machine = nullptr;
  const machine::MatrixRow* row = nullptr;  // null: fused multiply-adds
  Scalar factor = Scalar::f32;
  BlockProduct::Side own_side = BlockProduct::Side::a;  // of both products
  int down = 1, across = 1;   // groups of lanes: along own lines, along walked lines or widths
  int64_t own = 1, walk = 1;  // lines of a tile
  bool one_by_one = false;    // walked panels take turns in one place
  // Walked panels are copied while the last ones are multiplied; lanes hold what results read of the products.
  bool streams = false;

  BlockProduct::Side walk_side() const;
  BlockTile product(int64_t k) const;         // own x walk
  BlockTile result(int64_t width) const;      // own x width, over walk
  BlockTile transposed(int64_t width) const;  // of streams: the walked lines that lie together for a result
  // The instruction reads its factors in shared memory: of results, the walked lines as they are, not transposed.
  bool in_shared() const { return row && row->in_shared; }
  int wave() const { return row ? row->collective->lanes : machine->wave; }
  int lanes() const { return wave() * down * across; }
  int64_t step(BlockProduct::Side side) const;  // lines of one instruction
  std::string text() const;                     // "mma.16x8x16.bf16bf16.f32 64x64 by 4x1 waves"
};

// A plan that streams; nothing where the machine has no such instructions, or not enough registers or memory. Its
// operands' lines must be padded to multiples of stream_unit().
std::optional<AttendPlan> plan_attend_stream(const machine::Machine& m, Scalar products, const AttendProblem& problem);
// 0: nothing streams there.
int64_t stream_unit(const machine::Machine& m, Scalar products);

// The best plan with factors of type `products` or f32; nothing where the machine has no waves or no memory for it.
std::optional<AttendPlan> plan_attend(const machine::Machine& m, Scalar products, const AttendProblem& problem);

}  // namespace lumen::synth
