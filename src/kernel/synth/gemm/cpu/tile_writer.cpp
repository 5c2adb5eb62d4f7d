// See tile_writer.h.
#include "kernel/synth/gemm/cpu/tile_writer.h"

namespace lumen::synth {

Step TileWriter::write(std::string plan, const std::function<void()>& multiply) {
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(cut_.tasks(p_)), 1, [&](Expr task) {
    n_first_ = task % cut_.n_tasks * cut_.n_task;
    m_first_ = task / cut_.n_tasks % cut_.m_tasks * cut_.m_task;
    outer_ = task / (cut_.n_tasks * cut_.m_tasks);
    if (cut_.outer_task > 1) outer_ = outer_ * cut_.outer_task;
    w_.enter_outer(outer_);
    n_last_ = min(n_first_ + cut_.n_task, w_.i64(cut_.n_tiles));
    m_last_ = w_.used_tiles(min(m_first_ + cut_.m_task, w_.i64(cut_.m_tiles)), cut_.height);
    w_.where_row(m_first_ * cut_.height, multiply);
  });
  return w_.product(std::move(plan));
}

void TileWriter::each_end(Expr tile, int64_t tiles, bool differs, const std::function<void()>& whole,
                          const std::function<void()>& last) {
  if (!differs) return whole();
  if (tiles == 1) return last();
  b_.branch(tile < tiles - 1, whole, last);
}

void TileWriter::each_height(Expr m_tile, const std::function<void(int)>& code) {
  each_end(
      m_tile, cut_.m_tiles, cut_.last_height != cut_.height, [&] { code(cut_.height); },
      [&] { code(cut_.last_height); });
}

void TileWriter::each_width(Expr n_tile, bool masks, const std::function<void(int, bool)>& code) {
  const bool masked = masks && cut_.masked;
  each_end(
      n_tile, cut_.n_tiles, masked || cut_.last_vectors != cut_.vectors, [&] { code(cut_.vectors, false); },
      [&] { code(cut_.last_vectors, masked); });
}

void TileWriter::finish_sums(BufferId sums, const Place& place) {
  const int64_t columns = int64_t{cut_.vectors} * lanes_;
  const Expr m0 = m_first_ * cut_.height, n0 = n_first_ * columns;
  const Expr m_end = min(m_last_ * cut_.height, w_.i64(p_.m.extent));
  const Expr n_end = min(n_last_ * columns, w_.i64(p_.n.extent));
  b_.loop(LoopKind::serial, m0, m_end, 1, [&](Expr m) {
    b_.loop(LoopKind::serial, n0, n_end, lanes_, [&](Expr n) {
      const Expr at = place(m, m0, n, n0);
      const Expr count = cut_.masked ? min(n_end - n, w_.i64(lanes_)) : Expr{};
      w_.finish_vector(b_.load(sums, {p_.sum, lanes_}, at, 4), m, n, count);
    });
  });
}

}  // namespace lumen::synth
