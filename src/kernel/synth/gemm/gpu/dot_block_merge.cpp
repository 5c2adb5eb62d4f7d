// See dot_block_merge.h.
#include "kernel/synth/gemm/gpu/dot_block_merge.h"

#include <algorithm>

#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {
namespace {

constexpr int kMergeLanes = 4;

class Merge {
 public:
  Merge(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, int scratch)
      : p_(p), t_(t), w_(g, p, "merge"), b_(w_.b) {
    partial_ = w_.scratch_param("partial", scratch, partial_bytes(p, t), false);
    lanes_ = std::min<int64_t>(kMergeLanes, p.n.extent);
  }

  Step write(std::string plan) {
    if (t_.splits > 1)
      add_parts();
    else
      add_partial_tiles();
    return w_.step(std::move(plan));
  }

 private:
  Expr count_of(Expr n) { return p_.n.extent % lanes_ == 0 ? Expr{} : min(p_.n.extent - n, w_.i64(lanes_)); }

  void add_parts() {
    const int64_t across = ceil_div(p_.n.extent, lanes_), rows = p_.outer_extent() * p_.m.extent;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(rows * across), 1, [&](Expr task) {
      const Expr row = task / across, n = task % across * lanes_, count = count_of(n);
      Expr sum;
      for (int64_t part = 0; part < t_.splits; ++part) {
        const Expr at = (row + part * rows) * p_.n.extent + n;
        const Expr x = b_.load(partial_, {Scalar::f32, lanes_}, at * 4, 4, count);
        sum = !sum.exists() ? x : sum + x;
      }
      w_.enter_outer(row / p_.m.extent);
      w_.finish_vector(sum, row % p_.m.extent, n, count);
    });
  }

  // Adds the partial tiles of the tiles after the last whole wave, in the order of K.
  void add_partial_tiles() {
    const TileScheduler& scheduler = t_.scheduler;
    const int64_t m = t_.tile.m(), n = t_.tile.n(), across = ceil_div(n, lanes_), of_tile = m * across;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(scheduler.tail() * of_tile), 1, [&](Expr task) {
      const Expr tile = task / of_tile, inside = task % of_tile;
      const Expr row = inside / across, column = inside % across * lanes_;
      const TilePlace place = t_.order().place(tile + scheduler.waves() * scheduler.persistent_blocks);
      const Expr at_m = place.m0 + row, at_n = place.n0 + column;
      const auto merge = [&] {
        const BufferId sums = b_.alloc(int64_t{lanes_} * 4, 16);
        const VType type{Scalar::f32, lanes_};
        b_.store(sums, b_.real(0, type), w_.i64(0), 16);
        const TileScheduler::PersistentBlocks persistent_blocks = scheduler.persistent_blocks_of(b_, tile);
        b_.loop(LoopKind::serial, persistent_blocks.first, persistent_blocks.last, 1, [&](Expr persistent_block) {
          b_.branch(scheduler.has_partial_tile(persistent_block, tile), [&] {
            const Expr element = TileScheduler::partial_tile(persistent_block, tile) * (m * n) + (row * n + column);
            const Expr x = b_.load(partial_, type, element * 4, 4);
            b_.store(sums, b_.load(sums, type, w_.i64(0), 16) + x, w_.i64(0), 16);
          });
        });
        w_.enter_outer(place.outer);
        w_.finish_vector(b_.load(sums, type, w_.i64(0), 16), at_m, at_n, count_of(at_n));
      };
      const bool whole_m = p_.m.extent % m == 0, whole_n = p_.n.extent % n == 0;
      if (whole_m && whole_n) return merge();
      b_.branch((at_m < p_.m.extent) & (at_n < p_.n.extent), merge);
    });
  }

  const DotProblem& p_;
  const BlockPlan& t_;
  DotWriter w_;
  Builder& b_;
  BufferId partial_ = -1;
  int lanes_ = 1;
};

}  // namespace

int64_t partial_bytes(const DotProblem& p, const BlockPlan& t) {
  if (t.splits > 1) return t.splits * p.outer_extent() * p.m.extent * p.n.extent * 4;
  return t.scheduler.partial_tiles() * t.tile.m() * t.tile.n() * 4;
}

Step write_merge(const graph::Graph& g, DotProblem p, const BlockPlan& t, int scratch) {
  for (size_t load = 0; load < 2; ++load) p.loads[load].kind = DotLoad::Kind::splat;
  for (const auto& scales : p.run_scales)
    if (scales) p.loads[scales->load].kind = DotLoad::Kind::splat;
  const std::string what = t.splits > 1
                               ? fmt::format("merge {}", t.splits)
                               : fmt::format("merge {} tiles of {}", t.scheduler.tail(), t.scheduler.persistent_blocks);
  return Merge(g, p, t, scratch).write(fmt::format("{} {}", describe_shape(p), what));
}

}  // namespace lumen::synth
