// Shared memory of a tile while it is encoded (codes_write.h): a slab of its columns at a time, sums row by row, then
// codes of the transposed matrix column by column, both padded so that adjacent lanes have few bank conflicts. Also
// decides which problems and tiles can be encoded.
#pragma once

#include <algorithm>

#include "kernel/synth/gemm/dot_problem.h"
#include "kernel/synth/mma/block_product.h"

namespace lumen::synth {

struct CodesStage {
  static constexpr int64_t kColumns = 32, kVector = 8, kWord = 4;  // columns of a slab; numbers of a lane; codes

  explicit CodesStage(const BlockTile& tile)
      : rows(tile.m()), columns(std::min(kColumns, tile.n())), lanes(tile.lanes()) {}
  int64_t rows, columns, lanes;

  int64_t row_bytes() const { return (columns + 8) * 4; }  // of sums
  int64_t sums_bytes() const { return row_bytes() * rows; }
  int64_t column_bytes() const { return rows + kWord; }  // of codes
  int64_t codes_bytes() const { return column_bytes() * columns; }
  int64_t vectors() const { return rows * columns / kVector / lanes; }  // of a lane
  int64_t words() const { return rows * columns / kWord / lanes; }
  bool fits() const { return columns % kVector == 0 && rows * columns % (kVector * lanes) == 0 && rows % kWord == 0; }
};

// Shared bytes of a tile besides its panels.
inline int64_t codes_shared_bytes(const DotProblem& p, const BlockTile& tile, const machine::Machine& m) {
  if (p.codes.empty()) return 0;
  const CodesStage stage(tile);
  const int64_t transposed = std::ranges::count_if(p.codes, [](const auto& c) { return c.transposed >= 0; });
  const int64_t extremes = std::ssize(p.extremes) * (tile.lanes() / m.wave) * 4;
  return stage.sums_bytes() + transposed * (stage.codes_bytes() + 16) + extremes + 64;
}

// One dense matrix, of whole vectors in both directions.
inline bool can_encode(const DotProblem& p) {
  constexpr int64_t kWhole = 16;
  const bool is_dense = p.n.result == 1 && (p.m.extent == 1 || p.m.result == p.n.extent);
  return is_dense && p.outer.empty() && p.joint_m.size() < 2 && !p.pick && !p.blocks && !p.runs &&
         p.m.extent % kWhole == 0 && p.n.extent % kWhole == 0;
}

}  // namespace lumen::synth
