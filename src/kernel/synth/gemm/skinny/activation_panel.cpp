// See activation_panel.h.
#include "kernel/synth/gemm/skinny/activation_panel.h"

namespace lumen::synth {

namespace {

constexpr int64_t kLine = SkinnyMmaPlan::kLine, kNumber = 4;

}  // namespace

ActivationPanel::ActivationPanel(DotWriter& w, const SkinnyMmaPlan& t, BufferId lines, BufferId sums, Expr first)
    : w_(w), b_(w.b), t_(t), first_(first) {
  const int64_t runs = t_.vectors(), row = t_.lanes_k * kLine;
  lines_ = {-1, lines, t_.stage_units() * runs, t_.units * runs, t_.columns * t_.lanes_k, kLine, t_.panel_bytes(), row};
  lines_.to = b_.alloc(t_.buffers * t_.panel_bytes(), 128, loop::Space::shared);
  if (!t_.sums_activations()) return;
  const int64_t vector = t_.rows_anywhere ? kNumber : kLine, groups = t_.groups();
  sums_ = {-1,
           sums,
           t_.stage_units() * groups,
           t_.units * groups,
           t_.columns * kNumber / vector,
           vector,
           t_.panel_sum_bytes(),
           kNumber};
  sums_.to = b_.alloc(t_.buffers * t_.panel_sum_bytes(), 128, loop::Space::shared);
}

void ActivationPanel::begin(Expr lane, Expr stage, Expr number) {
  copy(lines_, lane, stage, number);
  if (sums_.to >= 0) copy(sums_, lane, stage, number);
}

void ActivationPanel::copy(const Lines& l, Expr lane, Expr stage, Expr number) {
  const int64_t all = l.runs * l.across, lanes = t_.lanes();
  for (int64_t first = 0; first < all; first += lanes) {
    const Expr line = lane + first;
    const auto one = [&] {
      const Expr to = number * l.bytes + line * l.vector;
      Expr from = stage * l.bytes + line * l.vector;
      if (t_.rows != t_.columns) {
        const Expr run = stage * l.runs + line / l.across;
        const Expr within = line % l.across;
        from = (run * t_.rows + first_) * l.row_bytes + within * l.vector;
      }
      b_.copy(l.to, to, l.from, from, l.vector);
    };
    Expr exists;
    if (first + lanes > all) exists = line < all;
    if (l.all_runs % l.runs != 0) {
      const Expr there = stage * all + line < l.all_runs * l.across;
      exists = !exists.exists() ? there : exists & there;
    }
    w_.where(exists, one);
  }
}

Expr ActivationPanel::vector(Expr number, Expr unit, int tile, int64_t vector, Expr column, Expr lane_k) {
  const int64_t run = t_.columns * t_.lanes_k * kLine;
  const Expr slot = column * t_.lanes_k + lane_k;
  Expr byte = number * t_.panel_bytes() + unit * (t_.vectors() * run);
  byte = byte + slot * kLine;
  return b_.load(lines_.to, {t_.factor.to, static_cast<int>(SkinnyMmaPlan::kVector)},
                 byte + (vector * run + int64_t{tile} * t_.row->n * t_.lanes_k * kLine), kLine);
}

Expr ActivationPanel::sums(Expr number, Expr unit, int64_t group, int tile, Expr column) {
  const int64_t run = t_.columns * kNumber;
  Expr byte = number * t_.panel_sum_bytes() + unit * (t_.groups() * run);
  byte = byte + column * kNumber;
  const int lanes = t_.sums_beside();
  return b_.load(sums_.to, {Scalar::f32, lanes}, byte + (group * run + int64_t{tile} * t_.row->n * kNumber),
                 kNumber * lanes);
}

}  // namespace lumen::synth
