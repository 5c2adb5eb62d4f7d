// See dot_block_merge.h.
#include "kernel/synth/gemm/gpu/dot_block_merge.h"

#include <algorithm>

#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/step/ceil_div.h"

namespace lumen::synth {
namespace {

using loop::BufferId;
using loop::LoopKind;
using loop::VType;
using Value = loop::ValueId;

constexpr int kMergeLanes = 4;

class Merge {
 public:
  Merge(const graph::Graph& g, const DotProblem& p, const BlockPlan& t, int scratch)
      : p_(p), t_(t), w_(g, p, "merge"), b_(w_.b) {
    partial_ = w_.scratch_param("partial", scratch, partial_bytes(p, t), false);
    lanes_ = static_cast<int>(std::min<int64_t>(kMergeLanes, p.n.extent));
  }

  Step write(std::string plan) {
    if (t_.parts > 1)
      add_parts();
    else
      add_segments();
    return w_.step(std::move(plan));
  }

 private:
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, w_.i64(y)); }
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, w_.i64(y)); }
  Value count_of(Value n) {
    return p_.n.extent % lanes_ == 0 ? -1 : w_.min(b_.op(ScalarOp::sub_, w_.i64(p_.n.extent), n), w_.i64(lanes_));
  }

  void add_parts() {
    const int64_t across = ceil_div(p_.n.extent, lanes_), rows = p_.outer_extent() * p_.m.extent;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(rows * across), 1, [&](Value task) {
      const Value row = div(task, across), n = w_.scaled(rem(task, across), lanes_), count = count_of(n);
      Value sum = -1;
      for (int64_t part = 0; part < t_.parts; ++part) {
        const Value at = w_.add(w_.scaled(w_.add(row, w_.i64(part * rows)), p_.n.extent), n);
        const Value x = b_.load(partial_, {Scalar::f32, lanes_}, w_.scaled(at, 4), 4, count);
        sum = sum < 0 ? x : b_.add(sum, x);
      }
      w_.enter_outer(div(row, p_.m.extent));
      w_.finish_vector(sum, rem(row, p_.m.extent), n, count);
    });
  }

  // Adds the segments of the tiles behind the last whole wave, in the order of K.
  void add_segments() {
    const TileScheduler& walk = t_.scheduler;
    const int64_t m = t_.tile.m(), n = t_.tile.n(), across = ceil_div(n, lanes_), of_tile = m * across;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(walk.tail() * of_tile), 1, [&](Value task) {
      const Value tile = div(task, of_tile), inside = rem(task, of_tile);
      const Value row = div(inside, across), column = w_.scaled(rem(inside, across), lanes_);
      const TilePlace place = t_.order().place(b_, w_.add(tile, w_.i64(walk.waves() * walk.persistent_blocks)));
      const Value at_m = w_.add(place.m0, row), at_n = w_.add(place.n0, column);
      const auto merge = [&] {
        const BufferId sums = b_.alloc(int64_t{lanes_} * 4, 16);
        const VType type{Scalar::f32, lanes_};
        b_.store(sums, b_.real(0, type), w_.i64(0), 16);
        const TileScheduler::PersistentBlocks persistent_blocks = walk.persistent_blocks_of(b_, tile);
        b_.loop(LoopKind::serial, persistent_blocks.first, persistent_blocks.last, 1, [&](Value persistent_block) {
          b_.branch(walk.has_segment(b_, persistent_block, tile), [&] {
            const Value element = w_.add(w_.scaled(TileScheduler::segment(b_, persistent_block, tile), m * n),
                                         w_.add(w_.scaled(row, n), column));
            const Value x = b_.load(partial_, type, w_.scaled(element, 4), 4);
            b_.store(sums, b_.add(b_.load(sums, type, w_.i64(0), 16), x), w_.i64(0), 16);
          });
        });
        w_.enter_outer(place.outer);
        w_.finish_vector(b_.load(sums, type, w_.i64(0), 16), at_m, at_n, count_of(at_n));
      };
      const bool whole_m = p_.m.extent % m == 0, whole_n = p_.n.extent % n == 0;
      if (whole_m && whole_n) return merge();
      b_.branch(b_.op(ScalarOp::and_, b_.op(ScalarOp::lt_, at_m, w_.i64(p_.m.extent)),
                      b_.op(ScalarOp::lt_, at_n, w_.i64(p_.n.extent))),
                merge);
    });
  }

  const DotProblem& p_;
  const BlockPlan& t_;
  DotWriter w_;
  loop::Builder& b_;
  BufferId partial_ = -1;
  int lanes_ = 1;
};

}  // namespace

int64_t partial_bytes(const DotProblem& p, const BlockPlan& t) {
  if (t.parts > 1) return t.parts * p.outer_extent() * p.m.extent * p.n.extent * 4;
  return t.scheduler.segments() * t.tile.m() * t.tile.n() * 4;
}

Step write_merge(const graph::Graph& g, DotProblem p, const BlockPlan& t, int scratch) {
  for (size_t load = 0; load < 2; ++load) p.loads[load].kind = DotLoad::Kind::splat;
  const std::string what = t.parts > 1
                               ? fmt::format("merge {}", t.parts)
                               : fmt::format("merge {} tiles of {}", t.scheduler.tail(), t.scheduler.persistent_blocks);
  return Merge(g, p, t, scratch).write(fmt::format("{} {}", describe_shape(p), what));
}

}  // namespace lumen::synth
