// See wave_groups.h.
#include "kernel/synth/gemm/wave_groups.h"

namespace lumen::synth {

namespace {

constexpr int64_t kBlockLanes = 128;  // of a block of waves

}  // namespace

void each_wave(DotWriter& w, int64_t outer, int64_t groups, int wave,
               const std::function<void(const WaveGroup&)>& body) {
  Builder& b = w.b;
  const int64_t all = outer * groups, waves = kBlockLanes / wave;
  b.loop(LoopKind::grid, w.i64(0), w.i64((all + waves - 1) / waves), 1, [&](Expr block) {
    b.loop(LoopKind::lane, w.i64(0), w.i64(kBlockLanes), 1, [&](Expr lane) {
      WaveGroup g;
      g.lane = b.lane_id();
      Expr number = block * waves + lane / wave;
      if (all % waves != 0) {
        g.exists = number < all;
        number = min(number, w.i64(all - 1));
      }
      g.outer = number / groups;
      g.group = number % groups;
      body(g);
    });
  });
}

void once_per_wave(DotWriter& w, const WaveGroup& g, const std::function<void()>& body) {
  Builder& b = w.b;
  Expr first = g.lane == 0;
  if (g.exists.exists()) first = first & g.exists;
  b.branch(first, body);
}

}  // namespace lumen::synth
