// See stream_panel.h.
#include "kernel/synth/gemm/skinny/stream_panel.h"

namespace lumen::synth {

using Value = loop::ValueId;

namespace {

constexpr int64_t kLine = MatrixStreamPlan::kLine, kNumber = 4;

}  // namespace

StreamPanel::StreamPanel(DotWriter& w, const MatrixStreamPlan& t, loop::BufferId lines, loop::BufferId sums,
                         Value first)
    : w_(w), b_(w.b), t_(t), first_(first) {
  const int64_t runs = t_.pieces(), row = t_.lanes_k * kLine;
  lines_ = {-1, lines, t_.stage_units() * runs, t_.units * runs, t_.columns * t_.lanes_k, kLine, t_.panel_bytes(), row};
  lines_.to = b_.alloc(t_.buffers * t_.panel_bytes(), 128, loop::Space::shared);
  if (!t_.sums_activations()) return;
  const int64_t piece = t_.rows_anywhere ? kNumber : kLine, groups = t_.groups();
  sums_ = {-1,
           sums,
           t_.stage_units() * groups,
           t_.units * groups,
           t_.columns * kNumber / piece,
           piece,
           t_.panel_sum_bytes(),
           kNumber};
  sums_.to = b_.alloc(t_.buffers * t_.panel_sum_bytes(), 128, loop::Space::shared);
}

void StreamPanel::begin(Value lane, Value stage, Value number) {
  copy(lines_, lane, stage, number);
  if (sums_.to >= 0) copy(sums_, lane, stage, number);
}

void StreamPanel::copy(const Lines& l, Value lane, Value stage, Value number) {
  const int64_t all = l.runs * l.across, lanes = t_.lanes();
  for (int64_t first = 0; first < all; first += lanes) {
    const Value line = b_.add(lane, b_.i64(first));
    const auto one = [&] {
      const Value to = w_.add(w_.scaled(number, l.bytes), w_.scaled(line, l.piece));
      Value from = w_.add(w_.scaled(stage, l.bytes), w_.scaled(line, l.piece));
      if (t_.rows != t_.columns) {
        const Value run = w_.add(w_.scaled(stage, l.runs), b_.op(ScalarOp::div_, line, b_.i64(l.across)));
        const Value within = b_.op(ScalarOp::rem_, line, b_.i64(l.across));
        from = w_.add(w_.scaled(w_.add(w_.scaled(run, t_.rows), first_), l.row_bytes), w_.scaled(within, l.piece));
      }
      b_.copy(l.to, to, l.from, from, l.piece);
    };
    Value exists = -1;
    if (first + lanes > all) exists = b_.op(ScalarOp::lt_, line, b_.i64(all));
    if (l.all_runs % l.runs != 0) {
      const Value there = b_.op(ScalarOp::lt_, w_.add(w_.scaled(stage, all), line), b_.i64(l.all_runs * l.across));
      exists = exists < 0 ? there : b_.op(ScalarOp::and_, exists, there);
    }
    if (exists < 0)
      one();
    else
      b_.branch(exists, one);
  }
}

Value StreamPanel::piece(Value number, Value unit, int tile, int64_t piece, Value column, Value lane_k) {
  const int64_t run = t_.columns * t_.lanes_k * kLine;
  const Value slot = b_.add(w_.scaled(column, t_.lanes_k), lane_k);
  Value byte = b_.add(w_.scaled(number, t_.panel_bytes()), w_.scaled(unit, t_.pieces() * run));
  byte = b_.add(byte, w_.scaled(slot, kLine));
  return b_.load(lines_.to, {t_.factor.to, static_cast<int>(MatrixStreamPlan::kPiece)},
                 b_.add(byte, b_.i64(piece * run + int64_t{tile} * t_.row->n * t_.lanes_k * kLine)), kLine);
}

Value StreamPanel::sums(Value number, Value unit, int64_t group, int tile, Value column) {
  const int64_t run = t_.columns * kNumber;
  Value byte = b_.add(w_.scaled(number, t_.panel_sum_bytes()), w_.scaled(unit, t_.groups() * run));
  byte = b_.add(byte, w_.scaled(column, kNumber));
  const auto lanes = static_cast<int>(t_.sums_beside());
  return b_.load(sums_.to, {Scalar::f32, lanes},
                 b_.add(byte, b_.i64(group * run + int64_t{tile} * t_.row->n * kNumber)),
                 static_cast<int>(kNumber) * lanes);
}

}  // namespace lumen::synth
