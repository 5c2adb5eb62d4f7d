// See tile_scheduler.h.
#include "kernel/synth/gemm/gpu/tile_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using loop::Builder;
using loop::Expr;

namespace {

constexpr int64_t kNeighbours = 16;  // tiles of m that follow each other, so that what they share stays in a cache

Expr scaled(Builder& b, Expr x, int64_t factor) {
  return x * factor;
}
Expr div(Builder& b, Expr x, int64_t y) {
  return x / y;
}
Expr rem(Builder& b, Expr x, int64_t y) {
  return x % y;
}
Expr sub(Builder& b, Expr x, Expr y) {
  return x - y;
}
Expr least_of(Builder& b, Expr x, Expr y) {
  return min(x, y);
}
Expr most_of(Builder& b, Expr x, Expr y) {
  return max(x, y);
}
Expr select(Builder& b, Expr c, Expr x, Expr y) {
  return select(c, x, y);
}

}  // namespace

int64_t TileScheduler::waves() const {
  return streams ? tiles / persistent_blocks : (tiles + persistent_blocks - 1) / persistent_blocks;
}
int64_t TileScheduler::tail() const {
  return streams ? tiles % persistent_blocks : 0;
}

bool TileScheduler::can_stream(int64_t tiles, int64_t stages, int64_t persistent_blocks) {
  return stages >= 2 * kLeastSegment && tiles % persistent_blocks * stages >= 2 * kLeastSegment * persistent_blocks;
}

// Even segments, but none begins or ends a few stages from a tile's.
Expr TileScheduler::bound(Builder& b, Expr persistent_block) const {
  const Expr even = div(b, scaled(b, persistent_block, tail() * stages), persistent_blocks);
  const Expr inside = rem(b, even, stages), begin = sub(b, even, inside);
  const Expr near_end = stages - kLeastSegment < inside;
  return select(b, inside < kLeastSegment, begin, select(b, near_end, begin + stages, even));
}

TileScheduler::Job TileScheduler::job(Builder& b, Expr persistent_block, Expr number) const {
  LUMEN_CHECK(persistent_blocks > 0, "nobody walks");
  const int64_t whole = waves();
  Job out;
  out.from = b.i64(0);
  out.tile = persistent_block + scaled(b, number, persistent_blocks);
  out.before = scaled(b, number, stages);
  if (!streams) {
    out.to = select(b, out.tile < tiles, b.i64(stages), b.i64(0));
    out.tile = least_of(b, out.tile, b.i64(tiles - 1));
    return out;
  }
  const Expr in_waves = number < whole;
  out.to = select(b, in_waves, b.i64(stages), b.i64(0));
  if (tail() == 0) {
    out.tile = least_of(b, out.tile, b.i64(tiles - 1));
    return out;
  }
  const Expr begin = bound(b, persistent_block), end = bound(b, persistent_block + 1);
  const Expr first_tile = div(b, begin, stages), second_tile = first_tile + 1;
  const Expr first_from = rem(b, begin, stages);
  const Expr first_to = least_of(b, b.i64(stages), first_from + sub(b, end, begin));
  const Expr second_to = most_of(b, b.i64(0), sub(b, end, scaled(b, second_tile, stages)));
  const Expr is_first = number == whole, is_second = number == whole + 1;
  const Expr tail_tile = least_of(b, select(b, is_second, second_tile, first_tile), b.i64(tail() - 1));
  out.from = select(b, is_first, first_from, b.i64(0));
  out.to = select(b, is_first, first_to, select(b, is_second, second_to, out.to));
  out.tile = select(b, in_waves, out.tile, tail_tile + whole * persistent_blocks);
  out.before = select(b, is_second, whole * stages + sub(b, first_to, first_from), out.before);
  out.segment = segment(b, persistent_block, tail_tile);
  return out;
}

TileScheduler::PersistentBlocks TileScheduler::persistent_blocks_of(Builder& b, Expr tail_tile) const {
  const Expr first = div(b, scaled(b, tail_tile, persistent_blocks), tail()),
             last = div(b, scaled(b, tail_tile + 1, persistent_blocks), tail());
  return {most_of(b, b.i64(0), sub(b, first, b.i64(1))), least_of(b, b.i64(persistent_blocks), last + 2)};
}

Expr TileScheduler::has_segment(Builder& b, Expr persistent_block, Expr tail_tile) const {
  const Expr begin = scaled(b, tail_tile, stages), end = begin + stages;
  return most_of(b, bound(b, persistent_block), begin) < least_of(b, bound(b, persistent_block + 1), end);
}

TilePlace TileOrder::place(Builder& b, Expr tile) const {
  int64_t group = 1;
  for (int64_t g = 1; g <= kNeighbours; ++g)
    if (m_tiles % g == 0) group = g;
  if (group * 4 < std::min(kNeighbours, m_tiles)) group = m_tiles;
  const Expr flat = rem(b, tile, m_tiles * n_tiles), in_group = rem(b, flat, group * n_tiles);
  TilePlace out;
  out.m0 = scaled(b, scaled(b, div(b, flat, group * n_tiles), group) + rem(b, in_group, group), m);
  out.n0 = scaled(b, div(b, in_group, group), n);
  out.outer = div(b, tile, m_tiles * n_tiles);
  return out;
}

}  // namespace lumen::synth
