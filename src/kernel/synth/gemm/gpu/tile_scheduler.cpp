// See tile_scheduler.h.
#include "kernel/synth/gemm/gpu/tile_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using loop::Builder;
using loop::ValueId;

namespace {

constexpr int64_t kNeighbours = 16;  // tiles of m that follow each other, so that what they share stays in a cache

ValueId scaled(Builder& b, ValueId x, int64_t factor) {
  return b.mul(x, b.i64(factor));
}
ValueId div(Builder& b, ValueId x, int64_t y) {
  return b.op(ScalarOp::div_, x, b.i64(y));
}
ValueId rem(Builder& b, ValueId x, int64_t y) {
  return b.op(ScalarOp::rem_, x, b.i64(y));
}
ValueId sub(Builder& b, ValueId x, ValueId y) {
  return b.op(ScalarOp::sub_, x, y);
}
ValueId least_of(Builder& b, ValueId x, ValueId y) {
  return b.op(ScalarOp::min_, x, y);
}
ValueId most_of(Builder& b, ValueId x, ValueId y) {
  return b.op(ScalarOp::max_, x, y);
}
ValueId select(Builder& b, ValueId c, ValueId x, ValueId y) {
  return b.op(ScalarOp::select_, c, x, y);
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
ValueId TileScheduler::bound(Builder& b, ValueId persistent_block) const {
  const ValueId even = div(b, scaled(b, persistent_block, tail() * stages), persistent_blocks);
  const ValueId inside = rem(b, even, stages), begin = sub(b, even, inside);
  const ValueId near_end = b.op(ScalarOp::lt_, b.i64(stages - kLeastSegment), inside);
  return select(b, b.op(ScalarOp::lt_, inside, b.i64(kLeastSegment)), begin,
                select(b, near_end, b.add(begin, b.i64(stages)), even));
}

TileScheduler::Job TileScheduler::job(Builder& b, ValueId persistent_block, ValueId number) const {
  LUMEN_CHECK(persistent_blocks > 0, "nobody walks");
  const int64_t whole = waves();
  Job out;
  out.from = b.i64(0);
  out.tile = b.add(persistent_block, scaled(b, number, persistent_blocks));
  out.before = scaled(b, number, stages);
  if (!streams) {
    out.to = select(b, b.op(ScalarOp::lt_, out.tile, b.i64(tiles)), b.i64(stages), b.i64(0));
    out.tile = least_of(b, out.tile, b.i64(tiles - 1));
    return out;
  }
  const ValueId in_waves = b.op(ScalarOp::lt_, number, b.i64(whole));
  out.to = select(b, in_waves, b.i64(stages), b.i64(0));
  if (tail() == 0) {
    out.tile = least_of(b, out.tile, b.i64(tiles - 1));
    return out;
  }
  const ValueId begin = bound(b, persistent_block), end = bound(b, b.add(persistent_block, b.i64(1)));
  const ValueId first_tile = div(b, begin, stages), second_tile = b.add(first_tile, b.i64(1));
  const ValueId first_from = rem(b, begin, stages);
  const ValueId first_to = least_of(b, b.i64(stages), b.add(first_from, sub(b, end, begin)));
  const ValueId second_to = most_of(b, b.i64(0), sub(b, end, scaled(b, second_tile, stages)));
  const ValueId is_first = b.op(ScalarOp::eq_, number, b.i64(whole)),
                is_second = b.op(ScalarOp::eq_, number, b.i64(whole + 1));
  const ValueId tail_tile = least_of(b, select(b, is_second, second_tile, first_tile), b.i64(tail() - 1));
  out.from = select(b, is_first, first_from, b.i64(0));
  out.to = select(b, is_first, first_to, select(b, is_second, second_to, out.to));
  out.tile = select(b, in_waves, out.tile, b.add(tail_tile, b.i64(whole * persistent_blocks)));
  out.before = select(b, is_second, b.add(b.i64(whole * stages), sub(b, first_to, first_from)), out.before);
  out.segment = segment(b, persistent_block, tail_tile);
  return out;
}

TileScheduler::PersistentBlocks TileScheduler::persistent_blocks_of(Builder& b, ValueId tail_tile) const {
  const ValueId first = div(b, scaled(b, tail_tile, persistent_blocks), tail()),
                last = div(b, scaled(b, b.add(tail_tile, b.i64(1)), persistent_blocks), tail());
  return {most_of(b, b.i64(0), sub(b, first, b.i64(1))), least_of(b, b.i64(persistent_blocks), b.add(last, b.i64(2)))};
}

ValueId TileScheduler::has_segment(Builder& b, ValueId persistent_block, ValueId tail_tile) const {
  const ValueId begin = scaled(b, tail_tile, stages), end = b.add(begin, b.i64(stages));
  return b.op(ScalarOp::lt_, most_of(b, bound(b, persistent_block), begin),
              least_of(b, bound(b, b.add(persistent_block, b.i64(1))), end));
}

TilePlace TileOrder::place(Builder& b, ValueId tile) const {
  int64_t group = 1;
  for (int64_t g = 1; g <= kNeighbours; ++g)
    if (m_tiles % g == 0) group = g;
  if (group * 4 < std::min(kNeighbours, m_tiles)) group = m_tiles;
  const ValueId flat = rem(b, tile, m_tiles * n_tiles), in_group = rem(b, flat, group * n_tiles);
  TilePlace out;
  out.m0 = scaled(b, b.add(scaled(b, div(b, flat, group * n_tiles), group), rem(b, in_group, group)), m);
  out.n0 = scaled(b, div(b, in_group, group), n);
  out.outer = div(b, tile, m_tiles * n_tiles);
  return out;
}

}  // namespace lumen::synth
