// Tasks take rows of k, so that memory is read in order.
#include "kernel/synth/gemm/operand/pack_step.h"

#include <algorithm>

#include "base/round_up.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {

constexpr int64_t kRowsOfK = 16;  // of a task

TilesOfA tiles_of_a(const DotProblem& p, const TilePlan& t) {
  TilesOfA s;
  s.row_bytes = round_up(t.height, t.lanes) * 4;
  s.tile_bytes = p.k_total() * s.row_bytes;
  s.bytes = p.outer_extent() * t.m_tiles * s.tile_bytes;
  return s;
}

Step write_pack_step(const graph::Graph& g, const DotProblem& p, const TilePlan& t, int scratch) {
  const DotProblem only_a = p.only_a();
  const TilesOfA tiles = tiles_of_a(p, t);
  DotWriter w(g, only_a, "pack");
  Builder& b = w.b;
  const BufferId out = w.scratch_param("tiles", scratch, tiles.bytes, true);
  const int64_t k_total = p.k_total(), parts = ceil_div(k_total, kRowsOfK);
  b.loop(LoopKind::parallel, w.i64(0), w.i64(p.outer_extent() * parts), 1, [&](Expr task) {
    const Expr outer = task / parts;
    const Expr first = task % parts * kRowsOfK;
    w.enter_outer(outer);
    // Row by row in memory order; every tile takes its part.
    b.loop(LoopKind::serial, first, min(first + kRowsOfK, w.i64(k_total)), 1, [&](Expr k) {
      const Expr in_row = w.base(0) + k % p.k.extent * p.k.strides[0];
      const Expr from = moved(in_row, k / p.k.extent, p.outer_k, 0);
      const Expr row = outer * (t.m_tiles * tiles.tile_bytes) + k * tiles.row_bytes;
      b.loop(LoopKind::serial, w.i64(0), w.i64(t.m_tiles), 1, [&](Expr tile) {
        const Expr to = row + tile * tiles.tile_bytes;
        for (int at = 0; at < t.height; at += t.lanes) {
          const Expr m = tile * t.height + at;
          Expr count = w.i64(std::min(t.lanes, t.height - at));
          if (t.last_height != t.height) count = max(min(count, p.m.extent - m), w.i64(0));
          const Expr v = w.read_f32(0, from + m * p.m.strides[0], p.m.strides[0], t.lanes, count);
          b.store(out, v, to + at * 4, 4);
        }
      });
    });
  });
  return w.step(fmt::format("pack {}x{} in tiles of {}", p.m.extent, k_total, t.height));
}

}  // namespace lumen::synth
