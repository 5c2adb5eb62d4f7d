// Sums of one element are added in the order of K whatever the cut into tasks: integers exactly within a group, groups
// one after another.
#include "kernel/synth/gemm/cpu/dot_matrix.h"

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/cpu/dot_matrix_left.h"
#include "kernel/synth/gemm/cpu/dot_matrix_panel.h"

namespace lumen::synth {
namespace {

using Value = loop::ValueId;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kStraightQuads = 8;  // of a loop over a group, written out

class MatrixKernel {
 public:
  MatrixKernel(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
               const LeftScratch& s)
      : p_(p), t_(t), m_(m), left_(left_layout(p, t)), w_(g, p, "dot"), b_(w_.b) {
    x_codes_ = w_.scratch_param("codes", s.codes, left_.code_bytes(), false);
    if (s.scales >= 0) x_scales_ = w_.scratch_param("scales", s.scales, left_.rows * left_.scales * 4, false);
    if (s.starts >= 0) x_starts_ = w_.scratch_param("starts", s.starts, left_.rows * left_.starts * 4, false);
    if (s.sums >= 0) x_sums_ = w_.scratch_param("sums", s.sums, left_.rows * left_.sums * 4, false);
  }

  Step write(std::string plan) {
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(t_.tasks(p_)), 1, [&](Value task) { write_task(task); });
    return w_.step(std::move(plan));
  }

 private:
  VType sum_type() const { return {Scalar::f32, t_.lanes()}; }
  int64_t vector_bytes() const { return int64_t{t_.lanes()} * 4; }
  int64_t sums_row() const { return t_.n_task * t_.tile_columns() * 4; }
  // The matrix unit's sums lie tile by tile: bytes of a tile, and of the tiles beside each other in a task.
  int64_t unit_bytes() const { return int64_t{t_.tile->rows} * t_.tile->columns * 4; }
  int64_t units_row() const { return t_.n_task * t_.vectors * unit_bytes(); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, w_.i64(y)); }
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, w_.i64(y)); }
  Value sub(Value x, Value y) { return b_.op(ScalarOp::sub_, x, y); }

  // The tile at hand: where its rows of a, its panel and its sums begin, and the stage.
  struct Tile {
    int height = 1, vectors = 1;
    Value row = -1;     // of scratch
    Value panel = -1;   // byte
    Value column = -1;  // byte within a group of scales
    Value sums = -1;    // byte
    Value k0 = -1, count = -1;
  };

  void write_task(Value task);
  void multiply_task();
  void write_tiles(Value k0, Value count);
  void write_tile(const Tile& tile);
  void sum_groups(const Tile& tile, std::vector<loop::BufferId>& sums);
  void sum_16bit_floats(const Tile& tile, std::vector<loop::BufferId>& sums);
  void write_units(const Tile& tile);
  void multiply_units(const Tile& tile, Value k, int units, const std::vector<loop::BufferId>& sums);
  void scale_units(const Tile& tile, Value k, int units);
  void multiply(const Tile& tile, Value k, int64_t quads, std::vector<Value>& sums);
  Value dot_accumulate(Value weight, Value x, Value sum);
  Value x_word(const Tile& tile, int i, Value k, int64_t quad);
  Value x_number(loop::BufferId buffer, const Tile& tile, int i, int64_t per_row, Value number, Scalar s);
  void finish();

  const DotProblem& p_;
  const MatrixPlan& t_;
  const machine::Machine& m_;
  LeftLayout left_;
  DotWriter w_;
  loop::Builder& b_;
  std::unique_ptr<MatrixPanel> panel_;
  loop::BufferId x_codes_ = -1, x_scales_ = -1, x_starts_ = -1, x_sums_ = -1, sums_ = -1, integer_units_ = -1;
  std::vector<loop::BufferId> accumulators_, parts_, integers_;
  Value outer_ = -1, m_first_ = -1, m_last_ = -1, n_first_ = -1, n_last_ = -1;
};

void MatrixKernel::write_task(Value task) {
  n_first_ = w_.scaled(rem(task, t_.n_tasks), t_.n_task);
  m_first_ = w_.scaled(rem(div(task, t_.n_tasks), t_.m_tasks), t_.m_task);
  outer_ = div(task, t_.n_tasks * t_.m_tasks);
  w_.enter_outer(outer_);
  n_last_ = w_.min(w_.add(n_first_, w_.i64(t_.n_task)), w_.i64(t_.n_tiles));
  m_last_ = w_.used_tiles(w_.min(w_.add(m_first_, w_.i64(t_.m_task)), w_.i64(t_.m_tiles)), t_.height);
  w_.where_row(w_.scaled(m_first_, t_.height), [&] { multiply_task(); });
}

void MatrixKernel::multiply_task() {
  panel_ = std::make_unique<MatrixPanel>(w_, p_, t_, m_);
  const int64_t rows = t_.m_task * t_.height;
  sums_ = b_.alloc(rows * sums_row() + vector_bytes());
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rows * sums_row()), vector_bytes(),
          [&](Value at) { b_.store(sums_, w_.zero(t_.lanes()), at, 4); });
  // Never the size of one tile: those live in registers of the matrix unit.
  if (t_.tile && t_.integers)
    integer_units_ = b_.alloc(std::max(2, t_.height / t_.tile->rows * t_.vectors) * unit_bytes());
  const int sums = t_.tile ? 0 : t_.height * t_.vectors;
  for (int i = 0; i < sums; ++i) {
    accumulators_.push_back(b_.alloc(vector_bytes()));
    parts_.push_back(b_.alloc(vector_bytes()));
    integers_.push_back(b_.alloc(vector_bytes()));
  }
  if (t_.stages == 1) {
    write_tiles(w_.i64(0), w_.i64(t_.padded_k));
  } else {
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.padded_k), t_.stage_k, [&](Value k0) {
      const bool even = t_.padded_k % t_.stage_k == 0;
      write_tiles(k0, even ? w_.i64(t_.stage_k) : w_.min(w_.i64(t_.stage_k), sub(w_.i64(t_.padded_k), k0)));
    });
  }
  finish();
}

void MatrixKernel::write_tiles(Value k0, Value count) {
  panel_->fill(n_first_, n_last_, k0, count);
  b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Value n_tile) {
    const Value n_inside = sub(n_tile, n_first_);
    auto column = [&](int vectors) {
      b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Value m_tile) {
        Tile tile;
        tile.vectors = vectors;
        tile.row = w_.add(w_.laid_row(outer_, left_.padded_m), w_.scaled(m_tile, t_.height));
        tile.panel = w_.scaled(n_inside, panel_->tile_bytes());
        tile.column = w_.scaled(n_inside, t_.tile_columns() * 4);
        const Value m_inside = sub(m_tile, m_first_);
        tile.sums = t_.tile ? w_.add(w_.scaled(m_inside, t_.height / t_.tile->rows * units_row()),
                                     w_.scaled(n_inside, t_.vectors * unit_bytes()))
                            : w_.add(w_.scaled(m_inside, t_.height * sums_row()), tile.column);
        tile.k0 = k0;
        tile.count = count;
        auto of_height = [&](int height) {
          tile.height = height;
          if (t_.tile)
            write_units(tile);
          else
            write_tile(tile);
        };
        if (t_.last_height == t_.height || t_.m_tiles == 1)
          of_height(t_.last_height);
        else
          b_.branch(
              b_.op(ScalarOp::lt_, m_tile, w_.i64(t_.m_tiles - 1)), [&] { of_height(t_.height); },
              [&] { of_height(t_.last_height); });
      });
    };
    if (t_.last_vectors == t_.vectors || t_.n_tiles == 1)
      column(t_.last_vectors);
    else
      b_.branch(
          b_.op(ScalarOp::lt_, n_tile, w_.i64(t_.n_tiles - 1)), [&] { column(t_.vectors); },
          [&] { column(t_.last_vectors); });
  });
}

void MatrixKernel::write_tile(const Tile& tile) {
  auto place = [&](int i, int j) { return w_.add(tile.sums, w_.i64(i * sums_row() + j * vector_bytes())); };
  std::vector<loop::BufferId> sums;
  for (int i = 0; i < tile.height; ++i)
    for (int j = 0; j < tile.vectors; ++j) {
      sums.push_back(accumulators_[static_cast<size_t>(i * tile.vectors + j)]);
      b_.store(sums.back(), b_.load(sums_, sum_type(), place(i, j), 4), w_.i64(0), 4);
    }
  if (t_.integers)
    sum_groups(tile, sums);
  else
    sum_16bit_floats(tile, sums);
  for (int i = 0; i < tile.height; ++i)
    for (int j = 0; j < tile.vectors; ++j)
      b_.store(sums_, b_.load(sums[static_cast<size_t>(i * tile.vectors + j)], sum_type(), w_.i64(0), 4), place(i, j),
               4);
}

// sum += the products of one word of every row.
Value MatrixKernel::dot_accumulate(Value weight, Value x, Value sum) {
  const machine::DotRow& row = t_.row;
  const VType result{row.acc, row.lanes};
  if (row.accumulates) return b_.inst(row.row, result, {sum, weight, x});
  if (row.pairs.empty()) return b_.add(sum, b_.inst(row.row, result, {weight, x}));
  const loop::Function* first = m_.meaning(row.row);
  const VType half = first->body.value_types[first->result];
  const Value products = b_.inst(row.row, half, {weight, x});
  std::vector<Value> operands{products};
  if (row.pairs_ones) operands.push_back(b_.integer(1, half));
  return b_.add(sum, b_.inst(row.pairs, result, operands));
}

// The word of a's row i that meets quad `quad` behind element k of the stage, in every lane.
Value MatrixKernel::x_word(const Tile& tile, int i, Value k, int64_t quad) {
  const Value at =
      w_.add(w_.add(w_.scaled(tile.row, left_.row_bytes), w_.scaled(w_.add(tile.k0, k), t_.element_bytes())),
             w_.i64(i * left_.row_bytes + quad * t_.word_bytes()));
  const Value word = b_.load(x_codes_, {t_.row.b, t_.row.k}, at, static_cast<int>(t_.word_bytes()));
  std::vector<int> mask;
  for (int64_t lane = 0; lane < t_.step(); ++lane) mask.push_back(static_cast<int>(lane % t_.row.k));
  return b_.shuffle({word}, mask);
}

// Number `number` of what row i of the tile has `per_row` of, in every lane.
Value MatrixKernel::x_number(loop::BufferId buffer, const Tile& tile, int i, int64_t per_row, Value number, Scalar s) {
  const Value at = w_.add(w_.add(w_.scaled(tile.row, per_row * 4), w_.scaled(number, 4)), w_.i64(i * per_row * 4));
  return b_.splat(b_.load(buffer, {s, 1}, at, 4), t_.lanes());
}

void MatrixKernel::multiply(const Tile& tile, Value k, int64_t quads, std::vector<Value>& sums) {
  const VType codes{t_.row.a, static_cast<int>(t_.step())};
  const int64_t bytes = t_.lanes() * t_.word_bytes();
  const Value panel = w_.add(tile.panel, w_.scaled(div(k, t_.row.k), panel_->quad_bytes()));
  for (int64_t quad = 0; quad < quads; ++quad) {
    std::vector<Value> weights;
    for (int j = 0; j < tile.vectors; ++j)
      weights.push_back(b_.load(panel_->codes(), codes,
                                w_.add(panel, w_.i64(quad * panel_->quad_bytes() + j * panel_->vector_bytes())),
                                static_cast<int>(bytes)));
    for (int i = 0; i < tile.height; ++i) {
      const Value x = x_word(tile, i, k, quad);
      for (int j = 0; j < tile.vectors; ++j) {
        Value& sum = sums[static_cast<size_t>(i * tile.vectors + j)];
        sum = dot_accumulate(weights[static_cast<size_t>(j)], x, sum);
      }
    }
  }
}

// One scale group of a after another; within it, groups of integer sums, scaled into its parts.
void MatrixKernel::sum_groups(const Tile& tile, std::vector<loop::BufferId>& sums) {
  const size_t count = sums.size();
  const VType integers{t_.row.acc, t_.lanes()};
  const int64_t groups = t_.scale_group / t_.group, quads = t_.group / t_.row.k;
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, t_.scale_group, [&](Value k) {
    std::vector<Value> parts(count, -1);
    const Value first = div(k, t_.group);                     // group of the stage
    const Value x_first = div(w_.add(tile.k0, k), t_.group);  // group of a's row
    for (int64_t group = 0; group < groups; ++group) {
      std::vector<Value> totals;
      for (int i = 0; i < tile.height; ++i) {
        const Value start =
            !t_.starts ? b_.integer(0, integers)
                       : x_number(x_starts_, tile, i, left_.starts, w_.add(x_first, w_.i64(group)), t_.row.acc);
        totals.insert(totals.end(), static_cast<size_t>(tile.vectors), start);
      }
      const Value at = w_.add(k, w_.i64(group * t_.group));
      if (quads <= 2 * kStraightQuads) {
        multiply(tile, at, quads, totals);
      } else {
        for (size_t s = 0; s < count; ++s) b_.store(integers_[s], totals[s], w_.i64(0), 4);
        const int64_t step = kStraightQuads * t_.row.k;
        LUMEN_CHECK(t_.group % step == 0, "groups of {}", t_.group);
        b_.loop(LoopKind::serial, at, w_.add(at, w_.i64(t_.group)), step, [&](Value here) {
          std::vector<Value> inner;
          for (size_t s = 0; s < count; ++s) inner.push_back(b_.load(integers_[s], integers, w_.i64(0), 4));
          multiply(tile, here, kStraightQuads, inner);
          for (size_t s = 0; s < count; ++s) b_.store(integers_[s], inner[s], w_.i64(0), 4);
        });
        for (size_t s = 0; s < count; ++s) totals[s] = b_.load(integers_[s], integers, w_.i64(0), 4);
      }
      const Value scales = w_.add(w_.scaled(w_.add(first, w_.i64(group)), panel_->group_bytes()), tile.column);
      for (int j = 0; j < tile.vectors; ++j) {
        const Value place = w_.add(scales, w_.i64(j * vector_bytes()));
        const Value scale = b_.load(panel_->scales(), sum_type(), place, 4);
        const Value offset = t_.offsets ? b_.load(panel_->offsets(), sum_type(), place, 4) : -1;
        for (int i = 0; i < tile.height; ++i) {
          const auto s = static_cast<size_t>(i * tile.vectors + j);
          const Value total = b_.convert(ScalarOp::cast_, Scalar::f32, totals[s]);
          parts[s] = parts[s] < 0 ? b_.mul(total, scale) : b_.op(ScalarOp::fma_, total, scale, parts[s]);
          if (t_.offsets)
            parts[s] = b_.op(ScalarOp::fma_,
                             x_number(x_sums_, tile, i, left_.sums, w_.add(x_first, w_.i64(group)), Scalar::f32),
                             offset, parts[s]);
        }
      }
    }
    const Value number = div(w_.add(tile.k0, k), t_.scale_group);
    for (int i = 0; i < tile.height; ++i) {
      const Value scale = x_number(x_scales_, tile, i, left_.scales, number, Scalar::f32);
      for (int j = 0; j < tile.vectors; ++j) {
        const auto s = static_cast<size_t>(i * tile.vectors + j);
        const Value sum = b_.load(sums[s], sum_type(), w_.i64(0), 4);
        b_.store(sums[s], b_.op(ScalarOp::fma_, parts[s], scale, sum), w_.i64(0), 4);
      }
    }
  });
}

void MatrixKernel::sum_16bit_floats(const Tile& tile, std::vector<loop::BufferId>& sums) {
  const int64_t step = t_.step();
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, step, [&](Value k) {
    std::vector<Value> values;
    for (const loop::BufferId s : sums) values.push_back(b_.load(s, sum_type(), w_.i64(0), 4));
    multiply(tile, k, step / t_.row.k, values);
    for (size_t s = 0; s < sums.size(); ++s) b_.store(sums[s], values[s], w_.i64(0), 4);
  });
}

// Tiles of the matrix unit: sums stay in its registers over a stage, or over a group where integers are scaled.
void MatrixKernel::write_units(const Tile& tile) {
  const int units = tile.height / t_.tile->rows, count = units * tile.vectors;
  const VType type{t_.row.acc, static_cast<int>(unit_bytes() / 4)};
  std::vector<loop::BufferId> sums;
  for (int i = 0; i < count; ++i) sums.push_back(b_.alloc(unit_bytes()));
  auto place = [&](int i) {
    return w_.add(tile.sums, w_.i64(i / tile.vectors * units_row() + i % tile.vectors * unit_bytes()));
  };
  auto at = [&](int i) { return sums[static_cast<size_t>(i)]; };
  if (!t_.integers) {
    for (int i = 0; i < count; ++i) b_.store(at(i), b_.load(sums_, type, place(i), 64), w_.i64(0), 64);
    b_.loop(LoopKind::serial, w_.i64(0), tile.count, t_.tile->k,
            [&](Value k) { multiply_units(tile, k, units, sums); });
    for (int i = 0; i < count; ++i) b_.store(sums_, b_.load(at(i), type, w_.i64(0), 64), place(i), 64);
    return;
  }
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, t_.scale_group, [&](Value first) {
    for (int i = 0; i < count; ++i) b_.store(at(i), b_.integer(0, type), w_.i64(0), 64);
    b_.loop(LoopKind::serial, first, w_.add(first, w_.i64(t_.scale_group)), t_.tile->k,
            [&](Value k) { multiply_units(tile, k, units, sums); });
    for (int i = 0; i < count; ++i)
      b_.store(integer_units_, b_.load(at(i), type, w_.i64(0), 64), w_.i64(i * unit_bytes()), 64);
    scale_units(tile, first, units);
  });
}

void MatrixKernel::multiply_units(const Tile& tile, Value k, int units, const std::vector<loop::BufferId>& sums) {
  const machine::TileRow& row = *t_.tile;
  const int64_t bytes = unit_bytes(), piece = row.k * t_.element_bytes();
  const VType sum{row.acc, static_cast<int>(bytes / 4)};
  const VType codes{row.a, static_cast<int>(bytes / t_.element_bytes())};
  const Value x = w_.add(w_.scaled(tile.row, left_.row_bytes),
                         w_.scaled(w_.scaled(w_.add(tile.k0, k), t_.element_bytes()), row.rows));
  LUMEN_CHECK(row.rows * piece == bytes, "a tile of {} rows of {} bytes", row.rows, piece);
  std::vector<Value> left;
  for (int i = 0; i < units; ++i)
    left.push_back(b_.load(x_codes_, codes, w_.add(x, w_.i64(i * row.rows * left_.row_bytes)), 64));
  const Value panel = w_.add(tile.panel, w_.scaled(div(k, t_.row.k), panel_->quad_bytes()));
  for (int j = 0; j < tile.vectors; ++j) {
    const Value right = b_.load(panel_->codes(), codes, w_.add(panel, w_.i64(j * panel_->vector_bytes())), 64);
    for (int i = 0; i < units; ++i) {
      const loop::BufferId s = sums[static_cast<size_t>(i * tile.vectors + j)];
      const Value before = b_.load(s, sum, w_.i64(0), 64);
      b_.store(s, b_.inst(row.row, sum, {before, left[static_cast<size_t>(i)], right}), w_.i64(0), 64);
    }
  }
}

// Integer sums of a group, row by row, times both scales.
void MatrixKernel::scale_units(const Tile& tile, Value k, int units) {
  const int rows = t_.tile->rows;
  const VType integers{t_.row.acc, t_.lanes()};
  const Value scales = w_.add(w_.scaled(div(k, t_.group), panel_->group_bytes()), tile.column);
  const Value number = div(w_.add(tile.k0, k), t_.scale_group);
  std::vector<Value> weight;
  for (int j = 0; j < tile.vectors; ++j)
    weight.push_back(b_.load(panel_->scales(), sum_type(), w_.add(scales, w_.i64(j * vector_bytes())), 4));
  for (int u = 0; u < units; ++u)
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rows), 1, [&](Value i) {
      Tile row = tile;
      row.row = w_.add(w_.add(tile.row, w_.i64(u * rows)), i);
      const Value scale = x_number(x_scales_, row, 0, left_.scales, number, Scalar::f32);
      for (int j = 0; j < tile.vectors; ++j) {
        const Value inside = w_.scaled(i, vector_bytes());
        const Value from = w_.add(inside, w_.i64((u * tile.vectors + j) * unit_bytes()));
        const Value to = w_.add(w_.add(tile.sums, inside), w_.i64(u * units_row() + j * unit_bytes()));
        const Value total = b_.convert(ScalarOp::cast_, Scalar::f32, b_.load(integer_units_, integers, from, 64));
        const Value both = b_.mul(weight[static_cast<size_t>(j)], scale);
        b_.store(sums_, b_.op(ScalarOp::fma_, total, both, b_.load(sums_, sum_type(), to, 64)), to, 64);
      }
    });
}

// The sums of the task go through the epilogue.
void MatrixKernel::finish() {
  const Value m0 = w_.scaled(m_first_, t_.height), n0 = w_.scaled(n_first_, t_.tile_columns());
  const Value m_end = w_.min(w_.scaled(m_last_, t_.height), w_.i64(p_.m.extent));
  const Value n_end = w_.min(w_.scaled(n_last_, t_.tile_columns()), w_.i64(p_.n.extent));
  b_.loop(LoopKind::serial, m0, m_end, 1, [&](Value m) {
    b_.loop(LoopKind::serial, n0, n_end, t_.lanes(), [&](Value n) {
      Value at = w_.add(w_.scaled(sub(m, m0), sums_row()), w_.scaled(sub(n, n0), 4));
      if (t_.tile) {
        const Value row = sub(m, m0);
        at = w_.add(w_.scaled(div(row, t_.tile->rows), units_row()),
                    w_.scaled(div(sub(n, n0), t_.tile->columns), unit_bytes()));
        at = w_.add(at, w_.scaled(rem(row, t_.tile->rows), vector_bytes()));
      }
      const Value count = t_.masked ? w_.min(sub(n_end, n), w_.i64(t_.lanes())) : -1;
      w_.finish_vector(b_.load(sums_, sum_type(), at, 4), m, n, count);
    });
  });
}

}  // namespace

void write_matrix_kernels(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                          Synthesis& out) {
  const LeftScratch s = write_left_step(g, p, t, m, out);
  Step step = MatrixKernel(g, p, t, m, s).write(describe_shape(p) + " " + describe(t));
  step.flops = p.flops();
  out.steps.push_back(std::move(step));
}

}  // namespace lumen::synth
