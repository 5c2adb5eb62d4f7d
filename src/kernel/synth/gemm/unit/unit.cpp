// See unit.h. The panel of a holds, for every tile of rows, a tile for each step of K; that of b does so for every
// `columns` columns. Steps count the inner k fastest.
#include "kernel/synth/gemm/unit/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/order/transpose.h"
#include "kernel/synth/step/shortlist.h"

namespace lumen::synth {
namespace {

constexpr int kLine = 64;  // bytes: alignment of private memory

// Numbers of one load along the inner k, for all outer k, step by step: `read(at, count, step)`, where `count` numbers
// of the step exist (absent: all).
void each_step(DotWriter& w, const DotProblem& p, const UnitPlan& t, size_t load, Expr from,
               const std::function<void(Expr at, Expr count, Expr step)>& read) {
  const auto run = [&](Expr at, Expr first) {
    const int64_t whole = p.k.extent / t.step_k(), rest = p.k.extent % t.step_k();
    w.b.loop(LoopKind::serial, w.i64(0), w.i64(whole), 1,
             [&](Expr step) { read(at + step * t.step_k(), Expr{}, first + step); });
    if (rest > 0) read(at + whole * t.step_k(), w.i64(rest), first + whole);
  };
  if (p.outer_k.empty()) return run(from, w.i64(0));
  w.b.loop(LoopKind::serial, w.i64(0), w.i64(graph::count_of(p.outer_k)), 1,
           [&](Expr number) { run(moved(from, number, p.outer_k, load), number * t.run_steps); });
}

class UnitKernel : ProductWriter {
 public:
  UnitKernel(const graph::Graph& g, const DotProblem& p, const UnitPlan& t, int scratch, int64_t scratch_bytes)
      : ProductWriter(g, p, t, t.row.columns), t_(t) {
    right_ = w_.scratch_param("panels", scratch, scratch_bytes, false);
  }

  Step write(std::string plan) {
    return ProductWriter::write(std::move(plan), [&] { multiply_task(); });
  }

 private:
  void multiply_task();
  void copy_rows_of_a(Expr m, int units);
  void multiply(Expr n_tile, int units, int vectors);
  void finish(Expr m_tile, Expr n_tile, int height, int vectors, bool masked);
  VType codes(Scalar s) const { return {s, t_.row.rows * t_.row.k}; }
  int64_t code_bytes() const { return t_.factor_bytes() / t_.instructions(); }
  int align() const { return t_.is_outer() ? 4 : kLine; }
  VType tile_sums() const { return {p_.sum, int(t_.tile_bytes() / 4)}; }

  const UnitPlan& t_;
  BufferId left_ = -1, right_ = -1, sums_ = -1;
  std::vector<BufferId> units_;
};

void UnitKernel::multiply_task() {
  const int units = t_.height / t_.row.rows;
  left_ = b_.alloc(units * t_.panel_bytes());
  // Never the size of one tile: buffers of that size are registers of the unit.
  sums_ = b_.alloc(std::max(2, units * t_.vectors) * t_.tile_bytes());
  for (int i = 0; i < units * t_.vectors && !t_.is_outer(); ++i) units_.push_back(b_.alloc(t_.tile_bytes()));
  b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Expr m_tile) {
    each_height(m_tile, [&](int height) {
      copy_rows_of_a(m_tile * t_.height, height / t_.row.rows);
      b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Expr n_tile) {
        each_width(n_tile, true, [&](int vectors, bool masked) {
          multiply(n_tile, height / t_.row.rows, vectors);
          finish(m_tile, n_tile, height, vectors, masked);
        });
      });
    });
  });
}

// Rows that do not exist repeat the last one; their sums are never stored.
void UnitKernel::copy_rows_of_a(Expr m, int units) {
  const int rows = t_.row.rows;
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(int64_t{units} * rows), 1, [&](Expr r) {
    Expr row = m + r;
    if (p_.m.extent % rows != 0) row = min(row, w_.i64(p_.m.extent - 1));
    const Expr to = r / rows * t_.panel_bytes() + r % rows * (t_.line / t_.instructions());
    each_step(w_, p_, t_, 0, w_.base(0) + w_.row_of(0, row), [&](Expr at, Expr count, Expr step) {
      const Expr line = w_.read(0, at, 1, t_.step_k(), count), place = to + step * t_.factor_bytes();
      if (t_.instructions() == 1) return b_.store(left_, line, place, kLine);
      for (int i = 0; i < t_.instructions(); ++i) {
        std::vector<int> word(t_.row.k);
        std::iota(word.begin(), word.end(), i * t_.row.k);
        b_.store(left_, b_.shuffle({line}, word), place + i * code_bytes(), 4);
      }
    });
  });
}

void UnitKernel::multiply(Expr n_tile, int units, int vectors) {
  const int64_t bytes = t_.tile_bytes();
  if (t_.is_outer()) {  // units hold this run of products only
    units_.clear();
    for (int i = 0; i < units * vectors; ++i) units_.push_back(b_.alloc(t_.tile_bytes()));
  }
  const auto at = [&](int i, int j) { return units_[i * vectors + j]; };
  const Expr panel = (outer_ * ceil_div(p_.n.extent, t_.row.columns) + n_tile * t_.vectors) * t_.panel_bytes();
  for (int i = 0; i < units; ++i)
    for (int j = 0; j < vectors; ++j) b_.store(at(i, j), b_.integer(0, tile_sums()), w_.i64(0), kLine);
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.steps), 1, [&](Expr step) {
    for (int part = 0; part < t_.instructions(); ++part) {
      const Expr here = step * t_.factor_bytes();
      const int64_t first = part * code_bytes();
      std::vector<Expr> left;
      for (int i = 0; i < units; ++i)
        left.push_back(b_.load(left_, codes(t_.row.a), here + (first + i * t_.panel_bytes()), align()));
      for (int j = 0; j < vectors; ++j) {
        const Expr right = b_.load(right_, codes(t_.row.b), panel + (here + (first + j * t_.panel_bytes())), align());
        for (int i = 0; i < units; ++i) {
          const Expr before = b_.load(at(i, j), tile_sums(), w_.i64(0), kLine);
          b_.store(at(i, j), b_.inst(t_.row.row, tile_sums(), {before, left[i], right}), w_.i64(0), kLine);
        }
      }
    }
  });
  for (int i = 0; i < units; ++i)
    for (int j = 0; j < vectors; ++j)
      b_.store(sums_, b_.load(at(i, j), tile_sums(), w_.i64(0), kLine), w_.i64((i * vectors + j) * bytes), kLine);
}

void UnitKernel::finish(Expr m_tile, Expr n_tile, int height, int vectors, bool masked) {
  const int rows = t_.row.rows, columns = t_.row.columns;
  const Expr m = m_tile * t_.height, n = n_tile * (int64_t{t_.vectors} * columns);
  const Expr last = masked ? p_.n.extent - (n + int64_t{vectors - 1} * columns) : Expr{};
  Expr all = w_.i64(height);
  if (p_.m.extent % rows != 0) all = min(all, p_.m.extent - m);
  b_.loop(LoopKind::serial, w_.i64(0), all, 1, [&](Expr r) {
    const Expr from = r / rows * (vectors * t_.tile_bytes()) + r % rows * (columns * 4);
    for (int j = 0; j < vectors; ++j) {
      const Expr sums = b_.load(sums_, {p_.sum, columns}, from + j * t_.tile_bytes(), std::min(kLine, columns * 4));
      w_.finish_vector(sums, m + r, n + int64_t{j} * columns, masked && j == vectors - 1 ? last : Expr{});
    }
  });
}

// Columns become words of neighbours along K, next to each other.
Step write_panels_of_b(const graph::Graph& g, const DotProblem& p, const UnitPlan& t, int scratch, int64_t bytes) {
  DotProblem only_b = p;
  only_b.loads.resize(2);
  only_b.loads[0] = {};
  only_b.loads[0].kind = DotLoad::Kind::splat;
  only_b.epilogue.clear();
  only_b.result = -1;
  DotWriter w(g, only_b, "panels");
  const BufferId panels = w.scratch_param("panels", scratch, bytes, true);
  const int64_t columns = t.row.columns, tiles = ceil_div(p.n.extent, columns);
  w.b.loop(LoopKind::parallel, w.i64(0), w.i64(p.outer_extent() * tiles), 1, [&](Expr task) {
    w.enter_outer(task / tiles);
    const Expr n = task % tiles * columns;
    const int64_t words = t.line / 4;  // transposed with as many columns
    each_step(w, only_b, t, 1, w.base(1), [&](Expr at, Expr count, Expr step) {
      const auto turn = [&](Expr first) {
        std::vector<Expr> rows;
        for (int64_t i = 0; i < words; ++i) {
          const Expr column = p.n.extent % columns == 0 ? n + first + i : min(n + first + i, w.i64(p.n.extent - 1));
          rows.push_back(w.read(1, at + column * p.n.strides[1], 1, t.step_k(), count));
        }
        transpose(w.b, rows, 4 / scalar_bytes(t.row.b));
        const Expr to = task * t.panel_bytes() + step * t.factor_bytes() + first * 4;
        for (int64_t i = 0; i < words; ++i) w.b.store(panels, rows[i], to + i * columns * 4, t.line);
      };
      if (words == columns) return turn(w.i64(0));
      w.b.loop(LoopKind::serial, w.i64(0), w.i64(columns), words, turn);
    });
  });
  return w.step(fmt::format("panels {}x{} of {}", p.n.extent, p.k_total(), t.row.row));
}

class UnitChooser {
 public:
  UnitChooser(const DotProblem& p, const machine::Machine& m, const machine::TileRow& row)
      : p_(p), m_(m), costs_(m.costs.panels) {
    t_.row = row;
    t_.line = 4 * m.f32_lanes();
    t_.run_steps = ceil_div(p.k.extent, t_.step_k());
    t_.steps = t_.run_steps * graph::count_of(p.outer_k);
    t_.stage_k = p.k.extent;
    t_.masked = p.n.extent % row.columns != 0;
  }

  std::vector<UnitPlan> choose() {
    const int64_t rows = ceil_div(p_.m.extent, t_.row.rows), columns = ceil_div(p_.n.extent, t_.row.columns);
    for (int64_t vectors = 1; vectors <= std::min<int64_t>(4, columns); ++vectors)
      for (int64_t units = 1; units <= std::min<int64_t>(3, rows); ++units) {
        const bool fit =
            t_.is_outer() ? units * vectors <= m_.tile_registers : units * vectors + units + 1 <= m_.tile_registers;
        if (!fit || units * t_.panel_bytes() > m_.l2_bytes / 2) continue;
        t_.vectors = vectors;
        t_.n_tiles = ceil_div(columns, vectors);
        t_.last_vectors = columns - (t_.n_tiles - 1) * vectors;
        t_.height = units * t_.row.rows;
        t_.m_tiles = ceil_div(rows, units);
        t_.last_height = (rows - (t_.m_tiles - 1) * units) * t_.row.rows;
        cut();
      }
    std::vector<UnitPlan> plans;
    for (const TileCut& cut : shortlist(std::move(cuts_))) static_cast<TileCut&>(plans.emplace_back(t_)) = cut;
    return plans;
  }

 private:
  // Tasks are runs of tiles of rows, each with all columns, or with part of them if there are few rows.
  void cut() {
    std::optional<TileCut> best;
    for (int64_t n_tasks = 1; n_tasks <= std::min<int64_t>(t_.n_tiles, 16); n_tasks *= 2)
      for (int64_t m_task = 1; m_task <= t_.m_tiles; m_task *= 2) {
        t_.n_task = ceil_div(t_.n_tiles, n_tasks);
        t_.n_tasks = ceil_div(t_.n_tiles, t_.n_task);
        t_.m_task = m_task;
        t_.m_tasks = ceil_div(t_.m_tiles, m_task);
        t_.cycles = cost();
        if (!best || t_.cycles < best->cycles) best = t_;
      }
    cuts_.push_back(*best);
  }

  double tile_cycles(int height, int vectors) const {
    const double units = height / t_.row.rows;
    const double step = std::max(units * vectors, (units + vectors) * costs_.broadcast) * m_.tile_cycles;
    const double cycles = step * double(t_.steps * t_.instructions()) + height * vectors * costs_.sum + costs_.tile;
    return t_.is_outer() ? cycles + height * vectors + kOuterRun : cycles;  // sums move row by row
  }

  double cost() const {
    const machine::TaskCosts& tasks = m_.costs.tasks;
    const double outer = p_.outer_extent(), rows = double(t_.m_tiles) * t_.height;
    double cycles = t_.sum([&](int height, int vectors) { return tile_cycles(height, vectors); });
    cycles += rows * double(t_.n_tasks * t_.steps) * tasks.copy;  // the panel of a
    cycles += double(p_.n.extent * t_.steps * t_.step_k()) * costs_.copy + tasks.small_launch / outer;  // that of b
    const double count = t_.tasks(p_);
    cycles = cycles * outer + tasks.task * count;
    return cycles * balance(m_, cycles, count);
  }

  const DotProblem& p_;
  const machine::Machine& m_;
  const machine::PanelCosts& costs_;
  UnitPlan t_;
  std::vector<TileCut> cuts_;
};

}  // namespace

std::optional<machine::TileRow> unit_of_codes(const DotProblem& p, const machine::Machine& m) {
  if (!p.are_whole() || !p.is_plain() || p.is_along_batch() || p.k.strides[0] != 1 || p.k.strides[1] != 1) return {};
  for (const DotLoad& l : {p.loads[0], p.loads[1]})
    if (l.kind != DotLoad::Kind::memory) return {};
  for (const machine::TileRow& row : m.tiles)
    if (row.a == p.loads[0].scalar && row.b == p.loads[1].scalar && row.acc == p.sum) return row;
  return {};
}

std::vector<UnitPlan> choose_units(const DotProblem& p, const machine::Machine& m, const machine::TileRow& row) {
  return UnitChooser(p, m, row).choose();
}

std::string describe(const UnitPlan& t) {
  return fmt::format("unit {}x{} task {}x{} {}", t.height, t.vectors * t.row.columns, t.m_task * t.height,
                     t.n_task * t.vectors * t.row.columns, t.row.row);
}

void write_unit_kernels(const graph::Graph& g, const DotProblem& p, const UnitPlan& t, Synthesis& out) {
  const int scratch = std::ssize(out.scratch);
  const int64_t bytes = p.outer_extent() * ceil_div(p.n.extent, t.row.columns) * t.panel_bytes();
  out.scratch.push_back(bytes);
  out.steps.push_back(write_panels_of_b(g, p, t, scratch, bytes));
  out.steps.push_back(UnitKernel(g, p, t, scratch, bytes).write(describe_shape(p) + " " + describe(t)));
}

}  // namespace lumen::synth
