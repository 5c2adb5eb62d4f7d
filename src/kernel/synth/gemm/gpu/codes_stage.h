// Where codes of a tile's transposed matrix lie in shared memory on their way (codes_write.h): column by column, and so
// that lanes that hold neighbouring rows and columns write to different banks. And which problems and tiles encode.
#pragma once

#include <algorithm>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

inline int64_t codes_stage_column(const BlockTile& tile) {  // bytes
  constexpr int64_t kApart = 4;
  return tile.m() + kApart;
}
inline int64_t codes_stage_bytes(const BlockTile& tile) {
  return codes_stage_column(tile) * tile.n();
}

// Shared bytes of a tile beside its panels.
inline int64_t codes_shared_bytes(const DotProblem& p, const BlockTile& tile, const machine::Machine& m) {
  const auto is_staged = [](const graph::DotCodes& c) { return c.transposed >= 0; };
  const int64_t stage = std::ranges::any_of(p.codes, is_staged) ? codes_stage_bytes(tile) : 0;
  return stage + std::ssize(p.extremes) * (tile.lanes() / m.wave) * 16;
}

// One matrix, dense, of whole vectors both ways.
inline bool can_encode(const DotProblem& p) {
  constexpr int64_t kWhole = 16;
  const bool is_dense = p.n.result == 1 && (p.m.extent == 1 || p.m.result == p.n.extent);
  return is_dense && p.outer.empty() && p.joint_m.size() < 2 && !p.pick && !p.blocks && !p.runs &&
         p.m.extent % kWhole == 0 && p.n.extent % kWhole == 0;
}
inline bool can_encode(const BlockTile& tile) {
  constexpr int64_t kWord = 4;
  return tile.m() % kWord == 0 && tile.m() / kWord * tile.n() % tile.lanes() == 0;
}

}  // namespace lumen::synth
