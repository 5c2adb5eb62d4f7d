// How a block of lanes computes an attention: its tile of stationary lines (queries, or keys where their gradient is
// wanted), tiles of the others that it streams, and the instruction that multiplies them. Depends on machines, not
// graphs.
#pragma once

#include <optional>
#include <string>

#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

// The least number of blocks, and the least width of keys and values together, for two groups of lanes in a block.
struct AttendEnough {
  int64_t blocks = 128, width = 224;
};

// What must be stored and computed.
struct AttendProblem {
  int64_t stationary = 1, streamed = 1;    // lines there are
  int64_t heads = 1;                       // independent problems
  std::vector<int64_t> stationary_widths;  // widths of the panels of stationary lines
  std::vector<int64_t> streamed_widths;    // of the panels of streamed lines
  std::vector<int64_t> results;  // of the sums of stationary lines; each needs a panel of streamed lines, transposed
  std::vector<int64_t> apart;    // of those panels, whose streamed lines no product reads
  int products = 1, sources = 1;
  bool rows_meet = false;              // lanes that share a stationary line exchange numbers in each tile
  std::optional<AttendEnough> enough;  // pipelined plans may take two groups of lanes, and wide tiles of streamed lines
};

struct AttendPlan {
  const machine::Machine* machine = nullptr;
  const machine::MatrixRow* row = nullptr;  // null: fused multiply-adds
  Scalar factor = Scalar::f32;
  BlockProduct::Side stationary_side = BlockProduct::Side::a;  // of both products
  int down = 1, across = 1;              // groups of lanes: along stationary lines, along streamed lines or widths
  int64_t stationary = 1, streamed = 1;  // lines of a tile
  bool one_by_one = false;               // streamed panels share one buffer in turn
  // Lanes load operands together (block_product.h), those of results transposed where their widths are whole runs.
  bool loads = false;
  // Streamed panels are copied while the last ones are multiplied; lanes hold the products that results read in
  // registers.
  bool pipelined = false;
  // The same by lanes that load operands together: only copies of the next tile overlap products.
  bool copies = false;
  bool copied() const { return pipelined || copies; }  // streamed panels are, double-buffered

  BlockProduct::Side streamed_side() const;
  bool can_load(const AttendProblem& problem) const;
  BlockTile product(int64_t k) const;         // stationary x streamed
  BlockTile result(int64_t width) const;      // stationary x width, over streamed
  BlockTile transposed(int64_t width) const;  // of pipelined plans: the streamed lines stored together for a result
  // The instruction reads its factors from shared memory; for results, streamed lines need not be transposed.
  bool in_shared() const { return row && row->in_shared; }
  int wave() const { return row ? row->collective->lanes : machine->wave; }
  int lanes() const { return wave() * down * across; }
  int64_t step(BlockProduct::Side side) const;  // lines of one instruction
  std::string text() const;                     // "mma.16x8x16.bf16bf16.f32 64x64 by 4x1 waves"
};

// A pipelined plan; nullopt if the machine does not have the instructions, registers or memory. Its operands' lines
// must be padded to multiples of pipelined_unit().
std::optional<AttendPlan> plan_attend_pipelined(const machine::Machine& m, Scalar products,
                                                const AttendProblem& problem);
// 0: the machine has no pipelined plans.
int64_t pipelined_unit(const machine::Machine& m, Scalar products);

// A plan whose streamed panels are copied (AttendPlan::copies); results read streamed lines that products read, too.
// nullopt if the machine has no asynchronous copies, lanes do not load together or lines are not whole runs of panels.
std::optional<AttendPlan> plan_attend_copied(const machine::Machine& m, Scalar products, const AttendProblem& problem);
// Numbers of such a run; 0: the machine has no such plans.
int64_t copied_unit(const machine::Machine& m, Scalar products);

// The best plan with factors of type `products` or f32; nullopt if the machine has no waves or too little memory.
std::optional<AttendPlan> plan_attend(const machine::Machine& m, Scalar products, const AttendProblem& problem);

}  // namespace lumen::synth
