// See wave_groups.h.
#include "kernel/synth/gemm/wave_groups.h"

namespace lumen::synth {

using loop::LoopKind;
using Value = loop::ValueId;

namespace {

constexpr int64_t kBlockLanes = 128;  // of a block of waves

}  // namespace

void each_wave(DotWriter& w, int64_t outer, int64_t groups, int wave,
               const std::function<void(const WaveGroup&)>& body) {
  loop::Builder& b = w.b;
  const int64_t all = outer * groups, waves = kBlockLanes / wave;
  b.loop(LoopKind::grid, w.i64(0), w.i64((all + waves - 1) / waves), 1, [&](Value block) {
    b.loop(LoopKind::lane, w.i64(0), w.i64(kBlockLanes), 1, [&](Value lane) {
      WaveGroup g;
      g.lane = b.lane_id();
      Value number = w.add(w.scaled(block, waves), b.op(ScalarOp::div_, lane, w.i64(wave)));
      if (all % waves != 0) {
        g.exists = b.op(ScalarOp::lt_, number, w.i64(all));
        number = w.min(number, w.i64(all - 1));
      }
      g.outer = b.op(ScalarOp::div_, number, w.i64(groups));
      g.group = b.op(ScalarOp::rem_, number, w.i64(groups));
      body(g);
    });
  });
}

void once_per_wave(DotWriter& w, const WaveGroup& g, const std::function<void()>& body) {
  loop::Builder& b = w.b;
  Value first = b.op(ScalarOp::eq_, g.lane, w.i64(0));
  if (g.exists >= 0) first = b.op(ScalarOp::and_, first, g.exists);
  b.branch(first, body);
}

}  // namespace lumen::synth
