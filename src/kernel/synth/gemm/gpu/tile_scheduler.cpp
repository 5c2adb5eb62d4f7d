// See tile_scheduler.h.
#include "kernel/synth/gemm/gpu/tile_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

namespace {

// Consecutive tiles of m, so that shared operands stay in a cache; if several caches share the tiles, a square of the
// tiles in flight at one of them (docs/guide/amd.md).
constexpr int64_t kNeighbours = 16, kNeighboursOnChiplet = 8;

}  // namespace

int64_t TileScheduler::waves() const {
  return stream_k ? tiles / persistent_blocks : (tiles + persistent_blocks - 1) / persistent_blocks;
}
int64_t TileScheduler::tail() const {
  return stream_k ? tiles % persistent_blocks : 0;
}

bool TileScheduler::can_stream_k(int64_t tiles, int64_t stages, int64_t persistent_blocks) {
  return stages >= 2 * kLeastStages && tiles % persistent_blocks * stages >= 2 * kLeastStages * persistent_blocks;
}

// Even partial tiles, but none begins or ends within a few stages of a tile's end.
Expr TileScheduler::bound(Expr block) const {
  const Expr even = block * (tail() * stages) / persistent_blocks;
  const Expr inside = even % stages, begin = even - inside;
  const Expr near_end = stages - kLeastStages < inside;
  return select(inside < kLeastStages, begin, select(near_end, begin + stages, even));
}

TileScheduler::Job TileScheduler::job(Builder& b, Expr block, Expr number) const {
  LUMEN_CHECK(persistent_blocks > 0, "no persistent blocks");
  const int64_t whole = waves();
  Job out;
  out.from = b.i64(0);
  out.tile = block + number * persistent_blocks;
  out.before = number * stages;
  if (!stream_k) {
    out.to = select(out.tile < tiles, b.i64(stages), b.i64(0));
    out.tile = min(out.tile, b.i64(tiles - 1));
    return out;
  }
  const Expr in_waves = number < whole;
  out.to = select(in_waves, b.i64(stages), b.i64(0));
  if (tail() == 0) {
    out.tile = min(out.tile, b.i64(tiles - 1));
    return out;
  }
  const Expr begin = bound(block), end = bound(block + 1);
  const Expr first_tile = begin / stages, second_tile = first_tile + 1;
  const Expr first_from = begin % stages;
  const Expr first_to = min(b.i64(stages), first_from + (end - begin));
  const Expr second_to = max(b.i64(0), end - second_tile * stages);
  const Expr is_first = number == whole, is_second = number == whole + 1;
  const Expr tail_tile = min(select(is_second, second_tile, first_tile), b.i64(tail() - 1));
  out.from = select(is_first, first_from, b.i64(0));
  out.to = select(is_first, first_to, select(is_second, second_to, out.to));
  out.tile = select(in_waves, out.tile, tail_tile + whole * persistent_blocks);
  out.before = select(is_second, whole * stages + (first_to - first_from), out.before);
  out.partial_tile = partial_tile(block, tail_tile);
  return out;
}

TileScheduler::PersistentBlocks TileScheduler::persistent_blocks_of(Builder& b, Expr tail_tile) const {
  const Expr first = tail_tile * persistent_blocks / tail(), last = (tail_tile + 1) * persistent_blocks / tail();
  return {max(b.i64(0), first - 1), min(b.i64(persistent_blocks), last + 2)};
}

Expr TileScheduler::has_partial_tile(Expr block, Expr tail_tile) const {
  const Expr begin = tail_tile * stages, end = begin + stages;
  return max(bound(block), begin) < min(bound(block + 1), end);
}

// A chiplet's blocks do a consecutive run of the work; the first chiplets do one more if it does not divide evenly.
Expr on_chiplets(Expr block, int64_t blocks, int chiplets) {
  const int64_t run = blocks / chiplets, longer = blocks % chiplets;
  if (chiplets == 1 || run == 0) return block;
  const Expr chiplet = block % chiplets, number = block / chiplets;
  const Expr first = chiplet * run;
  return number + (longer == 0 ? first : first + min(chiplet, longer));
}

TilePlace TileOrder::place(Expr tile) const {
  const int64_t neighbours = chiplets > 1 ? kNeighboursOnChiplet : kNeighbours;
  int64_t group = 1;
  for (int64_t g = 1; g <= neighbours; ++g)
    if (m_tiles % g == 0) group = g;
  if (group * 4 < std::min(neighbours, m_tiles)) group = m_tiles;
  const Expr flat = tile % (m_tiles * n_tiles), in_group = flat % (group * n_tiles);
  TilePlace out;
  out.m0 = (flat / (group * n_tiles) * group + in_group % group) * m;
  out.n0 = in_group / group * n;
  out.outer = tile / (m_tiles * n_tiles);
  return out;
}

}  // namespace lumen::synth
