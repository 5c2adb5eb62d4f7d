// Sums of one element are added in the order of K however the work is cut into tasks: exact integers within a group,
// group after group.
#include "kernel/synth/gemm/cpu/dot_matrix.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/cpu/dot_matrix_panel.h"
#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/operand/operand_step.h"
#include "kernel/synth/order/pairs.h"
#include "kernel/synth/order/transpose.h"

namespace lumen::synth {
namespace {

constexpr int64_t kStraightQuads = 8;  // quads of a group up to which its loop is unrolled
constexpr int64_t kCacheLine = 64;     // bytes
constexpr int64_t kOuterSteps = 4;     // outer products per iteration of a loop along K, unrolled

class MatrixKernel : ProductWriter {
 public:
  MatrixKernel(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
               const OperandLayout& left, const OperandScratch& s, const std::optional<LaidPanels>& laid)
      : ProductWriter(g, p, t, t.lanes()), t_(t), m_(m), left_(left), x_(declare_params(w_, left, s, false)) {
    if (laid) panel_ = std::make_unique<MatrixPanel>(w_, p_, t_, m_, *laid, false);
  }

  Step write(std::string plan) {
    return ProductWriter::write(std::move(plan), [&] { multiply_task(); });
  }

 private:
  VType sum_type() const { return {Scalar::f32, t_.lanes()}; }
  int64_t vector_bytes() const { return int64_t{t_.lanes()} * 4; }
  int64_t sums_row() const { return t_.n_task * t_.tile_columns() * 4; }
  // The matrix unit stores its sums tile by tile: bytes of a tile, and of a row of tiles in a task.
  int64_t unit_bytes() const { return int64_t{t_.tile->rows} * t_.tile->columns * 4; }
  int64_t units_row() const { return t_.n_task * t_.vectors * unit_bytes(); }

  // The current tile: start of its rows of a, of its panel and of its sums, and the stage.
  struct Tile {
    int height = 1, vectors = 1;
    Expr row;     // of scratch
    Expr panel;   // byte
    Expr column;  // byte of the first group's scales
    Expr sums;    // byte
    Expr k0, count;
  };

  void multiply_task();
  void write_tiles(Expr k0, Expr count);
  void transpose_sums();
  void write_tile(const Tile& tile);
  void sum_groups(const Tile& tile, std::vector<BufferId>& sums);
  void sum_floats(const Tile& tile, std::vector<BufferId>& sums);
  void write_units(const Tile& tile);
  void multiply_run(const Tile& tile, Expr from, Expr to, int units, const std::vector<BufferId>& sums);
  void multiply_units(const Tile& tile, Expr k, int units, const std::vector<BufferId>& sums);
  void scale_units(const Tile& tile, Expr k, int units);
  void multiply(const Tile& tile, Expr k, int64_t quads, std::vector<Expr>& sums);
  void multiply_by_two(const Tile& tile, Expr k, int64_t quads, std::vector<Expr>& sums);
  void rearrange(const std::vector<BufferId>& sums, const std::function<void(std::vector<Expr>&)>& change);
  Expr dot_accumulate(Expr weight, Expr x, Expr sum);
  Expr x_word(const Tile& tile, int i, Expr k, int64_t quad);
  Expr x_number(BufferId buffer, const Tile& tile, int i, int64_t per_row, Expr number, Scalar s);

  const MatrixPlan& t_;
  const machine::Machine& m_;
  const OperandLayout& left_;
  const OperandParams x_;
  std::unique_ptr<MatrixPanel> panel_;
  BufferId sums_ = -1, integer_units_ = -1;
  std::vector<BufferId> accumulators_, parts_, integers_;
};

void MatrixKernel::multiply_task() {
  if (!panel_ || !panel_->laid()) panel_ = std::make_unique<MatrixPanel>(w_, p_, t_, m_);
  const int64_t rows = t_.m_task * t_.height;
  sums_ = b_.alloc(rows * sums_row() + vector_bytes());
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rows * sums_row()), vector_bytes(),
          [&](Expr at) { b_.store(sums_, w_.zero(t_.lanes()), at, 4); });
  // Never the size of one tile: buffers of that size are registers of the matrix unit.
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
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.padded_k), t_.stage_k, [&](Expr k0) {
      const bool even = t_.padded_k % t_.stage_k == 0;
      write_tiles(k0, even ? w_.i64(t_.stage_k) : min(w_.i64(t_.stage_k), t_.padded_k - k0));
    });
  }
  if (t_.weight_first) transpose_sums();
  finish_sums(sums_, [&](Expr m, Expr m0, Expr n, Expr n0) {
    Expr at = (m - m0) * sums_row() + (n - n0) * 4;
    if (!t_.tile) return at;
    const Expr row = m - m0;
    at = row / t_.tile->rows * units_row() + (n - n0) / t_.tile->columns * unit_bytes();
    return at + row % t_.tile->rows * vector_bytes();
  });
}

// Tiles of sums have a row for each row of b: transposes them to a row for each row of a.
void MatrixKernel::transpose_sums() {
  const int lanes = t_.lanes();
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(t_.m_task * t_.height / lanes * units_row()), unit_bytes(),
          [&](Expr unit) {
            std::vector<Expr> rows;
            for (int i = 0; i < lanes; ++i) rows.push_back(b_.load(sums_, sum_type(), unit + i * vector_bytes(), 64));
            transpose(b_, rows);
            for (int i = 0; i < lanes; ++i) b_.store(sums_, rows[i], unit + i * vector_bytes(), 64);
          });
}

void MatrixKernel::write_tiles(Expr k0, Expr count) {
  const bool one_by_one = !panel_->laid() && t_.weight_first;
  if (!panel_->laid() && !one_by_one) panel_->fill(n_first_, n_last_, k0, count);
  b_.loop(LoopKind::serial, n_first_, n_last_, 1, [&](Expr n_tile) {
    const Expr n_inside = n_tile - n_first_;
    if (one_by_one) panel_->fill(n_tile, n_tile + 1, k0, count);
    each_width(n_tile, false, [&](int vectors, bool) {
      b_.loop(LoopKind::serial, m_first_, m_last_, 1, [&](Expr m_tile) {
        Tile tile;
        tile.vectors = vectors;
        tile.row = w_.laid_row(outer_, left_.outer_rows) + m_tile * t_.height;
        if (panel_->laid()) {
          panel_->enter(outer_, n_tile, k0 / t_.stage_k);
          tile.panel = panel_->codes_from();
          tile.column = panel_->groups_from();
        } else {
          const Expr filled = one_by_one ? w_.i64(0) : n_inside;
          tile.panel = filled * panel_->tile_bytes();
          tile.column = filled * (t_.tile_columns() * 4);
        }
        const Expr m_inside = m_tile - m_first_;
        tile.sums = t_.tile
                        ? m_inside * (t_.height / t_.tile->rows * units_row()) + n_inside * (t_.vectors * unit_bytes())
                        : m_inside * (t_.height * sums_row()) + n_inside * (t_.tile_columns() * 4);
        tile.k0 = k0;
        tile.count = count;
        each_height(m_tile, [&](int height) {
          tile.height = height;
          t_.tile ? write_units(tile) : write_tile(tile);
        });
      });
    });
  });
}

void MatrixKernel::write_tile(const Tile& tile) {
  auto place = [&](int i, int j) { return tile.sums + (i * sums_row() + j * vector_bytes()); };
  std::vector<BufferId> sums;
  for (int i = 0; i < tile.height; ++i)
    for (int j = 0; j < tile.vectors; ++j) {
      sums.push_back(accumulators_[i * tile.vectors + j]);
      b_.store(sums.back(), b_.load(sums_, sum_type(), place(i, j), 4), w_.i64(0), 4);
    }
  const bool rows_alternate = t_.by_two && !t_.integers;
  if (rows_alternate) rearrange(sums, [&](auto& values) { join_rows_by_two(b_, values, tile.vectors); });
  if (t_.integers)
    sum_groups(tile, sums);
  else
    sum_floats(tile, sums);
  if (rows_alternate) rearrange(sums, [&](auto& values) { part_rows_by_two(b_, values, tile.vectors); });
  for (int i = 0; i < tile.height; ++i)
    for (int j = 0; j < tile.vectors; ++j)
      b_.store(sums_, b_.load(sums[i * tile.vectors + j], sum_type(), w_.i64(0), 4), place(i, j), 4);
}

void MatrixKernel::rearrange(const std::vector<BufferId>& sums, const std::function<void(std::vector<Expr>&)>& change) {
  std::vector<Expr> values;
  for (const BufferId s : sums) values.push_back(b_.load(s, sum_type(), w_.i64(0), 4));
  change(values);
  for (size_t i = 0; i < sums.size(); ++i) b_.store(sums[i], values[i], w_.i64(0), 4);
}

// sum += the products of one word of every row.
Expr MatrixKernel::dot_accumulate(Expr weight, Expr x, Expr sum) {
  const machine::DotRow& row = t_.row;
  if (row.pairs.empty()) return add_dot(b_, CodesDot{row}, weight, x, sum);
  const loop::Function* first = m_.meaning(row.row);
  const VType half = first->body.value_types[first->result];
  std::vector<Expr> operands{b_.inst(row.row, half, {weight, x})};
  if (row.pairs_ones) operands.push_back(b_.integer(1, half));
  return sum + b_.inst(row.pairs, {row.acc, row.lanes}, operands);
}

// The word of a's row i that is multiplied with quad `quad` after element k of the stage, broadcast to every lane.
Expr MatrixKernel::x_word(const Tile& tile, int i, Expr k, int64_t quad) {
  const Expr at = tile.row * left_.row_bytes() + (tile.k0 + k) * t_.element_bytes() +
                  (i * left_.row_bytes() + quad * t_.word_bytes());
  return word_everywhere(b_, CodesDot{t_.row}, x_.codes, at, t_.word_bytes());
}

// Number `number` of the `per_row` that row i of the tile has, broadcast to every lane.
Expr MatrixKernel::x_number(BufferId buffer, const Tile& tile, int i, int64_t per_row, Expr number, Scalar s) {
  const Expr at = tile.row * (per_row * 4) + number * 4 + i * per_row * 4;
  return b_.splat(b_.load(buffer, {s, 1}, at, 4), t_.lanes());
}

// Words of two rows of a, adjacent in every 128 bits, are multiplied with those of as many columns as half a vector has
// lanes. Sums of the two rows alternate (join_rows_by_two).
void MatrixKernel::multiply_by_two(const Tile& tile, Expr k, int64_t quads, std::vector<Expr>& sums) {
  const int half = t_.step() / 2, pair = 2 * t_.row.k;
  const VType sum{t_.row.acc, t_.lanes()}, weight{t_.row.a, half};
  const int64_t bytes = panel_->vector_bytes() / 2;
  const Expr panel = tile.panel + k / t_.row.k * panel_->quad_bytes();
  const Expr x_from = tile.row * left_.row_bytes() + (tile.k0 + k) * (2 * t_.element_bytes());
  std::vector<int> everywhere;
  for (int lane = 0; lane < half; ++lane) everywhere.push_back(lane % pair);
  for (int64_t quad = 0; quad < quads; ++quad) {
    std::vector<Expr> weights;
    for (int part = 0; part < 2 * tile.vectors; ++part)
      weights.push_back(b_.load(panel_->codes(), weight, panel + (quad * panel_->quad_bytes() + part * bytes), bytes));
    for (int i = 0; i < tile.height; i += 2) {
      const Expr words = b_.load(x_.codes, {t_.row.b, pair},
                                 x_from + (i * left_.row_bytes() + quad * 2 * t_.word_bytes()), 2 * t_.word_bytes());
      const Expr x = pair == half ? words : b_.shuffle({words}, everywhere);
      for (int j = 0; j < tile.vectors; ++j)
        for (int part = 0; part < 2; ++part) {
          Expr& s = sums[(i + part) * tile.vectors + j];
          s = b_.inst(t_.row.row, sum, {s, weights[2 * j + part], x});
        }
    }
  }
}

void MatrixKernel::multiply(const Tile& tile, Expr k, int64_t quads, std::vector<Expr>& sums) {
  if (t_.by_two) return multiply_by_two(tile, k, quads, sums);
  const VType codes{t_.row.a, static_cast<int>(t_.step())};
  const int64_t bytes = t_.lanes() * t_.word_bytes();
  const Expr panel = tile.panel + k / t_.row.k * panel_->quad_bytes();
  for (int64_t quad = 0; quad < quads; ++quad) {
    std::vector<Expr> weights;
    for (int j = 0; j < tile.vectors; ++j)
      weights.push_back(
          b_.load(panel_->codes(), codes, panel + (quad * panel_->quad_bytes() + j * panel_->vector_bytes()), bytes));
    for (int i = 0; i < tile.height; ++i) {
      const Expr x = x_word(tile, i, k, quad);
      for (int j = 0; j < tile.vectors; ++j) {
        Expr& sum = sums[i * tile.vectors + j];
        sum = dot_accumulate(weights[j], x, sum);
      }
    }
  }
}

// One scale group of a after another; within it, groups of integer sums, scaled into its parts.
void MatrixKernel::sum_groups(const Tile& tile, std::vector<BufferId>& sums) {
  const size_t count = sums.size();
  const VType integers{t_.row.acc, t_.lanes()};
  const int64_t groups = t_.scale_group / t_.group, quads = t_.group / t_.row.k;
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, t_.scale_group, [&](Expr k) {
    std::vector<Expr> parts(count);
    const Expr first = k / t_.group;                // group of the stage
    const Expr x_first = (tile.k0 + k) / t_.group;  // group of a's row
    for (int64_t group = 0; group < groups; ++group) {
      std::vector<Expr> totals;
      for (int i = 0; i < tile.height; ++i) {
        const Expr start = !t_.starts ? b_.integer(0, integers)
                                      : x_number(x_.starts, tile, i, left_.groups(), x_first + group, t_.row.acc);
        totals.insert(totals.end(), tile.vectors, start);
      }
      if (t_.by_two && t_.starts) join_rows_by_two(b_, totals, tile.vectors);
      const Expr at = k + group * t_.group;
      if (quads <= 2 * kStraightQuads) {
        multiply(tile, at, quads, totals);
      } else {
        for (size_t s = 0; s < count; ++s) b_.store(integers_[s], totals[s], w_.i64(0), 4);
        const int64_t step = kStraightQuads * t_.row.k;
        LUMEN_CHECK(t_.group % step == 0, "groups of {}", t_.group);
        b_.loop(LoopKind::serial, at, at + t_.group, step, [&](Expr here) {
          std::vector<Expr> inner;
          for (size_t s = 0; s < count; ++s) inner.push_back(b_.load(integers_[s], integers, w_.i64(0), 4));
          multiply(tile, here, kStraightQuads, inner);
          for (size_t s = 0; s < count; ++s) b_.store(integers_[s], inner[s], w_.i64(0), 4);
        });
        for (size_t s = 0; s < count; ++s) totals[s] = b_.load(integers_[s], integers, w_.i64(0), 4);
      }
      if (t_.by_two) part_rows_by_two(b_, totals, tile.vectors);
      const Expr scales = (first + group) * panel_->group_bytes() + tile.column;
      for (int j = 0; j < tile.vectors; ++j) {
        const Expr place = scales + j * vector_bytes();
        const Expr scale = b_.load(panel_->scales(), sum_type(), place, 4);
        const Expr offset = t_.offsets ? b_.load(panel_->offsets(), sum_type(), place, 4) : Expr{};
        for (int i = 0; i < tile.height; ++i) {
          const size_t s = i * tile.vectors + j;
          const Expr total = cast(totals[s], Scalar::f32);
          parts[s] = !parts[s].exists() ? total * scale : fma(total, scale, parts[s]);
          if (t_.offsets)
            parts[s] = fma(x_number(x_.sums, tile, i, left_.groups(), x_first + group, Scalar::f32), offset, parts[s]);
        }
      }
    }
    const Expr number = (tile.k0 + k) / t_.scale_group;
    for (int i = 0; i < tile.height; ++i) {
      const Expr scale = x_number(x_.scales, tile, i, left_.scales(), number, Scalar::f32);
      for (int j = 0; j < tile.vectors; ++j) {
        const size_t s = i * tile.vectors + j;
        const Expr sum = b_.load(sums[s], sum_type(), w_.i64(0), 4);
        b_.store(sums[s], fma(parts[s], scale, sum), w_.i64(0), 4);
      }
    }
  });
}

void MatrixKernel::sum_floats(const Tile& tile, std::vector<BufferId>& sums) {
  const int64_t step = t_.step();
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, step, [&](Expr k) {
    std::vector<Expr> values;
    for (const BufferId s : sums) values.push_back(b_.load(s, sum_type(), w_.i64(0), 4));
    multiply(tile, k, step / t_.row.k, values);
    for (size_t s = 0; s < sums.size(); ++s) b_.store(sums[s], values[s], w_.i64(0), 4);
  });
}

// Tiles of the matrix unit: sums stay in its registers over a stage, or over a group if integers are scaled.
void MatrixKernel::write_units(const Tile& tile) {
  const int units = tile.height / t_.tile->rows, count = units * tile.vectors;
  const VType type{t_.row.acc, static_cast<int>(unit_bytes() / 4)};
  std::vector<BufferId> sums;
  for (int i = 0; i < count; ++i) sums.push_back(b_.alloc(unit_bytes()));
  auto place = [&](int i) { return tile.sums + (i / tile.vectors * units_row() + i % tile.vectors * unit_bytes()); };
  auto at = [&](int i) { return sums[i]; };
  if (!t_.integers) {
    for (int i = 0; i < count; ++i) b_.store(at(i), b_.load(sums_, type, place(i), 64), w_.i64(0), 64);
    multiply_run(tile, w_.i64(0), tile.count, units, sums);
    for (int i = 0; i < count; ++i) b_.store(sums_, b_.load(at(i), type, w_.i64(0), 64), place(i), 64);
    return;
  }
  b_.loop(LoopKind::serial, w_.i64(0), tile.count, t_.scale_group, [&](Expr first) {
    for (int i = 0; i < count; ++i) b_.store(at(i), b_.integer(0, type), w_.i64(0), 64);
    multiply_run(tile, first, first + t_.scale_group, units, sums);
    for (int i = 0; i < count; ++i)
      b_.store(integer_units_, b_.load(at(i), type, w_.i64(0), 64), w_.i64(i * unit_bytes()), 64);
    scale_units(tile, first, units);
  });
}

// Multiplies K from `from` to `to` - 1, in whole instructions.
void MatrixKernel::multiply_run(const Tile& tile, Expr from, Expr to, int units, const std::vector<BufferId>& sums) {
  const int64_t steps = t_.is_outer() ? std::gcd(kOuterSteps, t_.lanes()) : 1;
  b_.loop(LoopKind::serial, from, to, steps * t_.tile->k, [&](Expr k) {
    for (int64_t i = 0; i < steps; ++i) multiply_units(tile, i == 0 ? k : k + i * t_.tile->k, units, sums);
  });
}

void MatrixKernel::multiply_units(const Tile& tile, Expr k, int units, const std::vector<BufferId>& sums) {
  const machine::TileRow& row = *t_.tile;
  const VType sum{row.acc, row.rows * row.columns}, rows{row.a, row.rows * row.k}, columns{row.b, row.columns * row.k};
  const Expr x = tile.row * left_.row_bytes() + (tile.k0 + k) * t_.element_bytes() * row.rows;
  const int align = t_.is_outer() ? 4 : 64;  // words, or tiles
  const Expr panel = tile.panel + k / t_.row.k * panel_->quad_bytes();
  if (t_.weight_first) {
    std::vector<Expr> weights;
    for (int j = 0; j < tile.vectors; ++j)
      weights.push_back(b_.load(panel_->codes(), rows, panel + j * panel_->vector_bytes(), align));
    for (int i = 0; i < units; ++i) {
      const Expr right = b_.load(x_.codes, columns, x + i * row.rows * left_.row_bytes(), align);
      for (int j = 0; j < tile.vectors; ++j) {
        const BufferId s = sums[i * tile.vectors + j];
        const Expr before = b_.load(s, sum, w_.i64(0), 64);
        b_.store(s, b_.inst(row.row, sum, {before, weights[j], right}), w_.i64(0), 64);
      }
    }
    return;
  }
  std::vector<Expr> left;
  for (int i = 0; i < units; ++i) left.push_back(b_.load(x_.codes, rows, x + i * row.rows * left_.row_bytes(), align));
  for (int j = 0; j < tile.vectors; ++j) {
    const Expr right = b_.load(panel_->codes(), columns, panel + j * panel_->vector_bytes(), align);
    for (int i = 0; i < units; ++i) {
      const BufferId s = sums[i * tile.vectors + j];
      const Expr before = b_.load(s, sum, w_.i64(0), 64);
      b_.store(s, b_.inst(row.row, sum, {before, left[i], right}), w_.i64(0), 64);
    }
  }
}

// Adds integer sums of a group, row by row, times both scales.
void MatrixKernel::scale_units(const Tile& tile, Expr k, int units) {
  const int rows = t_.tile->rows, align = std::min(64, 4 * t_.lanes());
  const VType integers{t_.row.acc, t_.lanes()};
  const Expr scales = k / t_.group * panel_->group_bytes() + tile.column;
  const Expr number = (tile.k0 + k) / t_.scale_group;
  std::vector<Expr> weight;
  for (int j = 0; j < tile.vectors; ++j)
    weight.push_back(b_.load(panel_->scales(), sum_type(), scales + j * vector_bytes(), 4));
  for (int u = 0; u < units; ++u)
    b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rows), 1, [&](Expr i) {
      Tile row = tile;
      row.row = tile.row + u * rows + i;
      const Expr scale = x_number(x_.scales, row, 0, left_.scales(), number, Scalar::f32);
      for (int j = 0; j < tile.vectors; ++j) {
        const Expr inside = i * vector_bytes();
        const Expr from = inside + (u * tile.vectors + j) * unit_bytes();
        const Expr to = tile.sums + inside + (u * units_row() + j * unit_bytes());
        const Expr total = cast(b_.load(integer_units_, integers, from, align), Scalar::f32);
        const Expr both = weight[j] * scale;
        b_.store(sums_, fma(total, both, b_.load(sums_, sum_type(), to, align)), to, align);
      }
    });
}

// Layout of a's rows for the instruction. For the matrix unit codes lie tile by tile: blocks of rows, within them runs
// of a tile's bytes along K, row after row; for dots of two rows, word by word.
OperandLayout left_layout(const DotProblem& p, const MatrixPlan& t, const machine::Machine& m) {
  OperandLayout l;
  l.type = t.row.b;
  l.columns = p.k.extent;
  l.outer_rows = t.padded_m(p.blocks ? p.blocks->rows : p.m.extent);
  l.rows = (p.blocks ? 1 : p.outer_extent()) * l.outer_rows;
  l.order.unit.elements = t.integers ? t.scale_group : m.f32_lanes();
  l.order.units = t.padded_k / l.order.unit.elements;
  if (t.tile) {
    l.tile_rows = t.tile->rows;
    l.vector_bytes = t.weight_first ? t.word_bytes() : t.tile->k * t.element_bytes();
  } else {
    l.gap_bytes = kCacheLine;
  }
  if (t.by_two) {
    l.tile_rows = 2;
    l.vector_bytes = t.word_bytes();
  }
  if (!t.integers) return l;
  l.scale_group = t.scale_group;
  l.sum_group = t.group;
  l.starts = t.starts;
  l.sums = t.offsets;
  l.bias = t.integers->bias;
  return l;
}

}  // namespace

void write_matrix_kernels(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                          Synthesis& out) {
  const OperandLayout left = left_layout(p, t, m);
  const OperandScratch s = write_operand_step(g, p, left, m, out);
  std::optional<LaidPanels> laid;
  if (t.lays_panels()) laid = write_panels(g, p, t, m, out);
  out.steps.push_back(MatrixKernel(g, p, t, m, left, s, laid).write(describe_shape(p) + " " + describe(t)));
}

}  // namespace lumen::synth
