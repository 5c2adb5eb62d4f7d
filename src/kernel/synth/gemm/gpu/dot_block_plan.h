// Plans for dots on machines with thread blocks: tiles of the result, one per block, K in stages that pass through
// shared memory. The operands determine the instruction; a cost model over shape and machine facts determines how large
// tiles are. Proved by tests/kernel/synth/gemm/dot_block_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/gemm/gpu/tile_scheduler.h"
#include "kernel/synth/gemm/skinny/weight_stages.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

// How an operand is brought into its panel.
enum class Supply : uint8_t {
  copies,      // as it lies in memory, by asynchronous copies; or by those of lanes together (BlockTile::whole_rows)
  beside,      // the same for rows that are contiguous (transposed), if the instruction takes them so
  along_k,     // neighbours along k, converted on the way
  transposed,  // neighbours along rows, transposed in registers
  packed,      // unpacked along k
  single,      // number by number
};

struct BlockPlan {
  BlockTile tile;
  Supply a = Supply::single, b = Supply::single;
  int64_t m_tiles = 1, n_tiles = 1;
  int64_t per_k = 1, stages = 1;         // stages of the inner k, of all of K
  int64_t unrolled = 1;                  // stages per block of a format
  int64_t run_stages = 0;                // under the same scales, which multiply sums of stages; 0: no scales
  int64_t splits = 1, split_stages = 1;  // of K, in stages: a later step adds their sums
  int buffers = 2;                       // panels of each operand, or of b alone (panels_a)
  // Operands of a step of k are read while earlier steps are multiplied (BlockProduct::read_step).
  bool steps_ahead = false;
  int chiplets = 1;  // of the machine
  // Staging of b; nullopt: each lane loads the codes that it unpacks.
  std::optional<WeightStages::Plan> weight_stages = {};
  TileScheduler scheduler;
  double cycles = 0;  // estimate, of the whole machine

  bool rounds(const DotProblem& p) const;  // an operand loses digits on its way into a panel
  // Factors have sixteen bits or fewer, so maps of their sums may be computed with fewer digits, too.
  bool adds_rounded(const DotProblem& p) const {
    return is_float(tile.factor) ? scalar_bytes(tile.factor) < 4 : p.sum == Scalar::f32;
  }

  // Products of a stage overlap unpacking b of the next one.
  bool unpacks_beside() const { return tile.row && tile.row->in_shared && weight_stages && !tile.has_partial(); }
  // They also overlap products of the next stage; a is copied further ahead than b is unpacked.
  static constexpr int kUnpacked = 3, kCopiedAhead = 2;  // panels of b; stages
  bool unpacks_ahead() const { return unpacks_beside() && a == Supply::copies && buffers == kUnpacked; }
  int panels_a() const { return unpacks_ahead() ? kUnpacked - 1 + kCopiedAhead : buffers; }
  // Products of one stage overlap those of the next.
  bool overlaps() const { return tile.row && tile.row->in_shared && buffers > 2; }
  // Stages that are accumulated in a partial sum before it is added to the f32 sums.
  int64_t short_run() const {
    const bool lasts = run_stages == 0 || run_stages % 2 == 0;
    return overlaps() && tile.has_partial() && lasts && stages % 2 == 0 && split_stages % 2 == 0 ? 2 : 1;
  }
  TileOrder order() const { return {m_tiles, n_tiles, tile.m(), tile.n(), chiplets}; }
  int64_t blocks(const DotProblem& p) const { return p.outer_extent() * splits * m_tiles * n_tiles; }
};

// The model's choice first, then other candidates to measure. Empty if there are no blocks, or too little to do.
std::vector<BlockPlan> choose_blocks(const DotProblem& p, const machine::Machine& m, const Factors& factors);

// The types that operands are multiplied in. f32 unless both have one shorter type (or codes of 8-bit floats), or (not
// `exact`) one is packed in at most sixteen bits a number and the machine multiplies sixteen bits.
Factors choose_factors(const DotProblem& p, const machine::Machine& m, bool exact);

constexpr double kSecondCache = 40 << 20;  // bytes, of cards whose waves multiply in groups

// Cycles of the whole machine for a step that only reads and writes so many bytes.
double cycles_of_moving(const machine::Machine& m, double bytes);
// The same for split-K where waves multiply in groups: writing the sums of so many elements, and the step that adds
// them.
double cycles_of_parts(const machine::Machine& m, double elements, int64_t splits);

std::string describe(const BlockPlan& t, const DotProblem& p);

}  // namespace lumen::synth
