// See rows_writer.h.
#include "kernel/synth/gemm/cpu/rows_writer.h"

#include "base/round_up.h"

namespace lumen::synth {
void RowsWriter::ask_ahead(Expr first, Expr behind, int64_t count, int64_t bytes) {
  if (ahead_ == 0) return;
  w_.ask_for(1, (first + behind) * bytes, ahead_, count * bytes, m_.ahead_into);
}

Step RowsWriter::write(std::string plan, const std::function<void()>& declare,
                       const std::function<void(Expr n)>& multiply) {
  if (m_.wave > 1) {
    each_wave(w_, p_.outer_extent(), ceil_div(p_.n.extent, t_.width), m_.wave, [&](const WaveGroup& g) {
      wave_ = g;
      outer_ = g.outer;
      w_.enter_outer(outer_);
      const auto product = [&] {
        declare();
        multiply(g.group * t_.width);
      };
      w_.leaves_rows_out() ? w_.where_row(w_.i64(0), product) : product();
    });
    return w_.product(std::move(plan));
  }
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * t_.n_tasks), 1, [&](Expr task) {
    // Slices of rows follow each other, so that a task's part of b is read from memory for the first of them only.
    const Expr part = p_.slices > 1 ? task / p_.slices : task;
    const Expr first = part % t_.n_tasks * (t_.n_task * t_.width);
    outer_ = part / t_.n_tasks;
    if (p_.slices > 1) outer_ = outer_ * p_.slices + task % p_.slices;
    w_.enter_outer(outer_);
    const Expr last = min(first + t_.n_task * t_.width, w_.i64(p_.n.extent));
    w_.where_row(w_.i64(0), [&] {
      declare();
      b_.loop(LoopKind::serial, first, last, t_.width, multiply);
    });
  });
  return w_.product(std::move(plan));
}

void RowsWriter::finish(Expr n, const std::function<Expr(int, int)>& sum,
                        const std::function<Expr(Expr, int)>& scaled) {
  const Expr count = p_.n.extent % t_.width ? min(p_.n.extent - n, w_.i64(t_.width)) : Expr{};
  std::vector<Expr> results;
  for (int i = 0; i < t_.height; ++i) {
    Expr v = w_.zero(t_.width);
    for (int j = 0; j < t_.width; ++j) {
      Expr total = b_.fold(ScalarOp::add_, sum(i, j));
      if (by_waves()) total = b_.fold_wave(ScalarOp::add_, total, m_.wave);
      if (scaled) total = scaled(total, j);
      v = t_.width == 1 ? total : b_.insert(v, total, j);
    }
    results.push_back(v);
  }
  const auto store = [&] {
    for (int i = 0; i < t_.height; ++i) w_.finish_vector(results[i], w_.i64(i), n, count);
  };
  by_waves() ? once_per_wave(w_, wave_, store) : store();
}

}  // namespace lumen::synth
