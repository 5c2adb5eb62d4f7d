// See software_pipeline.h.
#include "kernel/synth/step/software_pipeline.h"

namespace lumen::synth {

using loop::Flow;

void SoftwarePipeline::lanes(const OfLane& body) {
  b_.loop(LoopKind::lane, b_.i64(0), b_.i64(shape_.lanes), 1, body);
}

void SoftwarePipeline::begin(const std::function<void()>& copies) {
  copies();
  if (shape_.copies) b_.commit(Flow::copies);
}

void SoftwarePipeline::begin_early(const Prologue& p) {
  for (int64_t i = 0; i < p.early; ++i) p.rest ? p.constant(i) : begin([&] { p.constant(i); });
}

void SoftwarePipeline::wait_for_kernels(const Prologue& p) {
  if (p.waits) b_.wait(Flow::kernels, 0);
}

void SoftwarePipeline::begin_first(const Prologue& p) {
  for (int64_t i = p.rest ? 0 : p.early; i < ahead(); ++i)
    begin([&] {
      if (i >= p.early) p.constant(i);
      if (p.rest) p.rest(i);
    });
}

void SoftwarePipeline::wait_and_barrier(int64_t later, const OfLane& before) {
  const auto wait = [&](Expr lane) {
    if (before) before(lane);
    if (shape_.copies) b_.wait(Flow::copies, later);
  };
  if (shape_.by_wave) {
    wait({});
    b_.wave_barrier();
    return;
  }
  if (before || shape_.copies) lanes(wait);
  b_.barrier();
}

void SoftwarePipeline::step(const Stage& s) {
  const auto begin_next = [&](Expr lane) {
    if (s.begin) begin([&] { s.begin(lane); });
  };
  if (shape_.buffers == 1) {
    if (s.begin) wait_and_barrier(0, begin_next);
    lanes(s.use);
    b_.barrier();
    return;
  }
  if (shape_.overlaps) {
    wait_and_barrier(ahead() - 2, [&](Expr lane) {
      s.use(lane);
      b_.commit(Flow::products);
      if (s.follows) b_.wait(Flow::products, 1);
    });
    lanes([&](Expr lane) {
      begin_next(lane);
      if (s.finish) s.finish(lane);
    });
    return;
  }
  wait_and_barrier(ahead() - 1);
  const auto both = [&](Expr lane) {
    begin_next(lane);
    s.use(lane);
  };
  shape_.by_wave ? both({}) : lanes(both);
}

}  // namespace lumen::synth
