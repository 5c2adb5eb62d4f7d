// See product_writer.h.
#include "kernel/synth/gemm/cpu/product_writer.h"

#include <bit>
#include <numeric>

#include "base/check.h"

namespace lumen::synth {
namespace {

constexpr int64_t kBlockLanes = 128;  // of a block of waves

// The sums of the lanes of each of several vectors, a power of two of at most as many as each has lanes: added in the
// order of Builder::fold, halves of vectors first, but for two vectors at a time.
Expr fold_each(Builder& b, std::vector<Expr> vectors) {
  const int lanes = b.type(vectors[0]).lanes;
  // The lower (upper) halves of all runs of `run` lanes.
  const auto halves = [](int all, int run, bool upper) {
    std::vector<int> mask;
    for (int lane = 0; lane < all; ++lane)
      if ((lane % run >= run / 2) == upper) mask.push_back(lane);
    return mask;
  };
  int run = lanes;
  for (; vectors.size() > 1; run /= 2) {
    std::vector<Expr> next;
    for (size_t v = 0; v < vectors.size(); v += 2) {
      const std::vector<Expr> two{vectors[v], vectors[v + 1]};
      next.push_back(b.shuffle(two, halves(2 * lanes, run, false)) + b.shuffle(two, halves(2 * lanes, run, true)));
    }
    vectors = std::move(next);
  }
  Expr all = vectors[0];
  for (int left = lanes; run > 1; run /= 2, left /= 2)
    all = b.shuffle({all}, halves(left, run, false)) + b.shuffle({all}, halves(left, run, true));
  return all;
}

ProductSchedule of_rows(const DotProblem& p, const RowsPlan& t, const machine::Machine& m) {
  ProductSchedule s;
  if (m.wave > 1) s.workers = ProductSchedule::Workers::waves;
  return s.with(t, p);
}

}  // namespace

ProductWriter::ProductWriter(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m)
    : p_(p),
      w_(g, p, "dot"),
      b_(w_.b),
      s_(of_rows(p, t, m)),
      wave_lanes_(m.wave),
      ahead_(is_read_ahead(p, m) ? m.ahead_bytes : 0),
      ahead_into_(m.ahead_into) {}

void ProductWriter::ask_ahead(Expr first, Expr behind, int64_t count, int64_t bytes) {
  if (ahead_ == 0) return;
  w_.ask_for(1, (first + behind) * bytes, ahead_, count * bytes, ahead_into_);
}

// Digits of the task's number: slices of rows, columns, rows, the outer index. Slices follow each other, so that a
// task's part of b is read from memory for the first of them only.
void ProductWriter::enter_task(Expr task) {
  const Expr part = s_.slices > 1 ? task / s_.slices : task;
  const int64_t columns = s_.is_by_column ? s_.columns() : 1;  // of what is counted
  n_first_ = part % s_.n_tasks * (s_.n_task * columns);
  if (!s_.is_by_column) m_first_ = part / s_.n_tasks % s_.m_tasks * s_.m_task;
  outer_ = part / (s_.n_tasks * s_.m_tasks);
  if (s_.slices > 1) outer_ = outer_ * s_.slices + task % s_.slices;
  if (s_.outer_task > 1) outer_ = outer_ * s_.outer_task;
  w_.enter_outer(outer_);
  n_last_ = min(n_first_ + s_.n_task * columns, w_.i64(s_.is_by_column ? p_.n.extent : s_.n_tiles));
  if (!s_.is_by_column) m_last_ = w_.used_tiles(min(m_first_ + s_.m_task, w_.i64(s_.m_tiles)), s_.height);
}

void ProductWriter::each_wave(const std::function<void()>& body) {
  const int64_t groups = s_.n_tasks, all = p_.outer_extent() * groups, waves = kBlockLanes / wave_lanes_;
  b_.loop(LoopKind::grid, w_.i64(0), w_.i64((all + waves - 1) / waves), 1, [&](Expr block) {
    b_.loop(LoopKind::lane, w_.i64(0), w_.i64(kBlockLanes), 1, [&](Expr lane) {
      wave_.lane = b_.lane_id();
      Expr number = block * waves + lane / wave_lanes_;
      if (all % waves != 0) {
        wave_.exists = number < all;
        number = min(number, w_.i64(all - 1));
      }
      outer_ = number / groups;
      wave_.group = number % groups;
      w_.enter_outer(outer_);
      w_.leaves_rows_out() ? w_.where_row(w_.i64(0), body) : body();
    });
  });
}

Step ProductWriter::write(std::string plan, const std::function<void()>& body) {
  if (s_.workers == ProductSchedule::Workers::waves) {
    each_wave(body);
    return w_.product(std::move(plan));
  }
  b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(s_.tasks(p_)), 1, [&](Expr task) {
    enter_task(task);
    w_.where_row(s_.is_by_column ? w_.i64(0) : m_first_ * s_.height, body);
  });
  return w_.product(std::move(plan));
}

Step ProductWriter::write(std::string plan, const std::function<void()>& declare,
                          const std::function<void(Expr n)>& enter, const std::function<void(Expr n)>& multiply) {
  const auto group = [&](Expr n) {
    enter(n);
    if (s_.m_task == 1) return multiply(n);
    const Expr first = outer_;
    b_.loop(LoopKind::serial, first, first + s_.m_task, 1, [&](Expr slice) {
      outer_ = slice;
      w_.enter_outer(outer_);
      multiply(n);
    });
    outer_ = first;
    w_.enter_outer(outer_);
  };
  return write(std::move(plan), [&] {
    declare();
    if (by_waves())
      group(wave_.group * s_.vectors);
    else
      b_.loop(LoopKind::serial, n_first_, n_last_, s_.vectors, group);
  });
}

void ProductWriter::each_end(Expr tile, int64_t tiles, bool differs, const std::function<void()>& whole,
                             const std::function<void()>& last) {
  if (!differs) return whole();
  if (tiles == 1) return last();
  b_.branch(tile < tiles - 1, whole, last);
}

void ProductWriter::each_height(Expr m_tile, const std::function<void(int)>& code) {
  each_end(m_tile, s_.m_tiles, s_.last_height != s_.height, [&] { code(s_.height); }, [&] { code(s_.last_height); });
}

void ProductWriter::each_width(Expr n_tile, bool masks, const std::function<void(int, bool)>& code) {
  const bool masked = masks && s_.masked;
  each_end(
      n_tile, s_.n_tiles, masked || s_.last_vectors != s_.vectors, [&] { code(s_.vectors, false); },
      [&] { code(s_.last_vectors, masked); });
}

void ProductWriter::finish_sums(BufferId sums, const Place& place) {
  const Expr m0 = m_first_ * s_.height, n0 = n_first_ * s_.columns();
  const Expr m_end = min(m_last_ * s_.height, w_.i64(p_.m.extent));
  const Expr n_end = min(n_last_ * s_.columns(), w_.i64(p_.n.extent));
  b_.loop(LoopKind::serial, m0, m_end, 1, [&](Expr m) {
    b_.loop(LoopKind::serial, n0, n_end, s_.lanes, [&](Expr n) {
      const Expr at = place(m, m0, n, n0);
      const Expr count = s_.masked ? min(n_end - n, w_.i64(s_.lanes)) : Expr{};
      w_.finish_vector(b_.load(sums, {p_.sum, s_.lanes}, at, 4), m, n, count);
    });
  });
}

void ProductWriter::finish(Expr n, const std::function<Expr(int, int)>& sum,
                           const std::function<Expr(Expr, int)>& scaled) {
  const int width = s_.vectors;
  const Expr count = p_.n.extent % width ? min(p_.n.extent - n, w_.i64(width)) : Expr{};
  const std::vector<Expr> results = s_.m_task > 1 ? folded_together(sum, scaled) : folded_apart(sum, scaled);
  const auto store = [&] {
    for (int i = 0; i < s_.height; ++i) w_.finish_vector(results[i], w_.i64(i), n, count);
  };
  if (!by_waves()) return store();
  Expr first = wave_.lane == 0;  // of a wave that has a group of its own
  if (wave_.exists.exists()) first = first & wave_.exists;
  b_.branch(first, store);
}

// By row, a lane for each column.
std::vector<Expr> ProductWriter::folded_together(const std::function<Expr(int, int)>& sum,
                                                 const std::function<Expr(Expr, int)>& scaled) {
  const int width = s_.vectors, all = s_.height * width;
  LUMEN_CHECK(std::has_single_bit(unsigned(width)), "{} columns of a panel", width);
  std::vector<Expr> sums, results;
  for (int i = 0; i < s_.height; ++i)
    for (int j = 0; j < width; ++j) sums.push_back(sum(i, j));
  const int lanes = b_.type(sums[0]).lanes;
  for (int first = 0; first < all;) {
    int count = width;
    while (count * 2 <= lanes && first + count * 2 <= all) count *= 2;
    const Expr totals = fold_each(b_, {sums.begin() + first, sums.begin() + first + count});
    for (int row = 0; row < count; row += width) {
      std::vector<int> mask(width);
      std::iota(mask.begin(), mask.end(), row);
      results.push_back(count == width ? totals : b_.shuffle({totals}, mask));
    }
    first += count;
  }
  if (!scaled) return results;
  for (Expr& row : results) {
    std::vector<Expr> numbers;
    for (int j = 0; j < width; ++j) numbers.push_back(scaled(b_.extract(row, j), j));
    for (int j = 0; j < width; ++j) row = b_.insert(row, numbers[j], j);
  }
  return results;
}

std::vector<Expr> ProductWriter::folded_apart(const std::function<Expr(int, int)>& sum,
                                              const std::function<Expr(Expr, int)>& scaled) {
  const int width = s_.vectors;
  std::vector<Expr> results;
  for (int i = 0; i < s_.height; ++i) {
    Expr v = w_.zero(width);
    for (int j = 0; j < width; ++j) {
      Expr total = b_.fold(ScalarOp::add_, sum(i, j));
      if (by_waves()) total = b_.fold_wave(ScalarOp::add_, total, wave_lanes_);
      if (scaled) total = scaled(total, j);
      v = width == 1 ? total : b_.insert(v, total, j);
    }
    results.push_back(v);
  }
  return results;
}

}  // namespace lumen::synth
