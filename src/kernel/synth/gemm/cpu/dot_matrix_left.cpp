// A task takes some groups of a row, or some squares of rows that lie the other way.
#include "kernel/synth/gemm/cpu/dot_matrix_left.h"

#include <algorithm>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/pack.h"

namespace lumen::synth {
namespace {

using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kElementsOfTask = 2048;

class LeftWriter {
 public:
  LeftWriter(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const LeftLayout& layout,
             const LeftScratch& s, int lanes)
      : p_(p), t_(t), layout_(layout), lanes_(lanes), w_(g, p, t.integers ? "quantize" : "round"), b_(w_.b) {
    codes_ = w_.scratch_param("codes", s.codes, layout.code_bytes(), true);
    if (s.scales >= 0) scales_ = w_.scratch_param("scales", s.scales, layout.rows * layout.scales * 4, true);
    if (s.starts >= 0) starts_ = w_.scratch_param("starts", s.starts, layout.rows * layout.starts * 4, true);
    if (s.sums >= 0) sums_ = w_.scratch_param("sums", s.sums, layout.rows * layout.sums * 4, true);
  }

  // Rows along m in memory, rounded: squares of them are transposed.
  Step write_transposed() {
    const int64_t blocks = (p_.m.extent + lanes_ - 1) / lanes_, squares = t_.padded_k / lanes_;
    const int64_t per_task = std::min<int64_t>(squares, 16), parts = (squares + per_task - 1) / per_task;
    const bool ragged = p_.m.extent % lanes_ != 0, tail = t_.padded_k != p_.k.extent;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * parts * blocks), 1, [&](Expr task) {
      const Expr m = task % blocks * lanes_;
      const Expr rest = task / blocks;
      const Expr first = rest % parts * per_task;
      const Expr outer = rest / parts;
      w_.enter_outer(outer);
      const Expr columns = ragged ? min(p_.m.extent - m, w_.i64(lanes_)) : Expr{};
      const Expr last = min(first + per_task, w_.i64(squares));
      b_.loop(LoopKind::serial, first, last, 1, [&](Expr square) {
        const Expr k0 = square * lanes_;
        std::vector<Expr> rows;
        for (int i = 0; i < lanes_; ++i) {
          Expr k = k0 + i, count = columns;
          if (tail) {  // rows beyond K are zero
            const Expr inside = k < p_.k.extent;
            count = select(inside, !columns.exists() ? w_.i64(lanes_) : columns, w_.i64(0));
            k = min(k, w_.i64(p_.k.extent - 1));
          }
          const Expr at = w_.base(0) + m + k * p_.k.strides[0];
          rows.push_back(w_.read_f32(0, at, 1, lanes_, count));
        }
        rows = transposed(b_, std::move(rows));
        const Expr row = outer * layout_.padded_m + m;
        for (int i = 0; i < lanes_; ++i) {
          auto store = [&] {
            row_ = row + i;
            store_codes(k0, rows[static_cast<size_t>(i)]);
          };
          if (ragged)
            b_.branch(i < columns, store);
          else
            store();
        }
      });
    });
    return w_.step(fmt::format("round and turn {}x{} to {}", layout_.rows, p_.k.extent, scalar_name(t_.row.b)));
  }

  Step write() {
    if (!t_.integers && p_.k.strides[0] != 1 && p_.m.strides[0] == 1) return write_transposed();
    const int64_t group = t_.integers ? t_.scale_group : lanes_, groups = t_.padded_k / group;
    const int64_t per_task = std::min(groups, std::max<int64_t>(1, kElementsOfTask / group));
    const int64_t parts = (groups + per_task - 1) / per_task;
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * p_.m.extent * parts), 1, [&](Expr task) {
      const Expr row = task / parts;
      const Expr first = task % parts * per_task;
      const Expr outer = row / p_.m.extent;
      const Expr m = row % p_.m.extent;
      w_.enter_outer(outer);
      row_ = outer * layout_.padded_m + m;
      x_ = w_.base(0) + m * p_.m.strides[0];
      b_.loop(LoopKind::serial, first, min(first + per_task, w_.i64(groups)), 1, [&](Expr number) {
        if (t_.integers)
          quantize(number);
        else
          store_codes(number * lanes_, read(number * lanes_));
      });
    });
    return w_.step(t_.integers
                       ? fmt::format("quantize {}x{} i8 groups of {}", layout_.rows, p_.k.extent, t_.scale_group)
                       : fmt::format("round {}x{} to {}", layout_.rows, p_.k.extent, scalar_name(t_.row.b)));
  }

 private:
  Expr read(Expr k) {
    Expr count;
    if (t_.padded_k != p_.k.extent) {
      count = p_.k.extent - k;
      count = max(min(count, w_.i64(lanes_)), w_.i64(0));
    }
    const int64_t stride = p_.k.strides[0];
    if (count.exists() && stride != 1)
      k = min(k, w_.i64(p_.k.extent - 1));  // one element is read even where none exists
    return w_.read_f32(0, x_ + k * stride, stride, lanes_, count);
  }

  void store_codes(Expr k, Expr v) {
    Expr at = k * t_.element_bytes();
    if (t_.tile) {  // k goes by whole vectors, which never leave their piece
      const int64_t rows = t_.tile->rows, piece = t_.tile->k * t_.element_bytes();
      const Expr in_piece = at % piece;
      at = at / piece * (rows * piece) + in_piece;
      at = at + row_ / rows * (rows * layout_.row_bytes);
      at = at + row_ % rows * piece;
    } else {
      at = at + row_ * layout_.row_bytes;
    }
    b_.store(codes_, b_.type(v).scalar == t_.row.b ? v : cast(v, t_.row.b), at);
  }

  void quantize(Expr number) {
    const Expr k0 = number * t_.scale_group;
    const VType one{Scalar::f32, 1};
    std::vector<Expr> parts;
    Expr most;
    for (int64_t at = 0; at < t_.scale_group; at += lanes_) {
      parts.push_back(read(k0 + at));
      const Expr size = abs(parts.back());
      most = !most.exists() ? size : max(most, size);
    }
    const Expr largest = b_.fold(ScalarOp::max_, most), zero = b_.real(0, one), full = b_.real(127, one);
    const Expr inverse = select(zero < largest, full / largest, zero);
    b_.store(scales_, largest / full, (row_ * layout_.scales + number) * 4, 4);
    const Expr groups_first = number * (t_.scale_group / t_.group);
    Expr total;
    for (int64_t i = 0; i < t_.scale_group / lanes_; ++i) {
      const Expr rounded = rint(parts[static_cast<size_t>(i)] * b_.splat(inverse, lanes_));
      const Expr code = cast(rounded, Scalar::i32);
      store_codes(k0 + i * lanes_, code);
      total = !total.exists() ? code : total + code;
      if ((i + 1) * lanes_ % t_.group != 0) continue;
      const Expr sum = b_.fold(ScalarOp::add_, total);
      const Expr place = groups_first + i * lanes_ / t_.group;
      if (starts_ >= 0) b_.store(starts_, sum * t_.integers->bias, (row_ * layout_.starts + place) * 4, 4);
      if (sums_ >= 0) b_.store(sums_, cast(sum, Scalar::f32), (row_ * layout_.sums + place) * 4, 4);
      total = {};
    }
  }

  const DotProblem& p_;
  const MatrixPlan& t_;
  const LeftLayout& layout_;
  int lanes_;
  DotWriter w_;
  loop::Builder& b_;
  loop::BufferId codes_ = -1, scales_ = -1, starts_ = -1, sums_ = -1;
  Expr row_, x_;
};

}  // namespace

LeftLayout left_layout(const DotProblem& p, const MatrixPlan& t) {
  LeftLayout l;
  l.padded_m = t.padded_m(p.blocks ? p.blocks->rows : p.m.extent);
  l.rows = (p.blocks ? 1 : p.outer_extent()) * l.padded_m;
  l.row_bytes = t.padded_k * t.element_bytes() + (t.tile ? 0 : 64);
  if (!t.integers) return l;
  l.scales = t.padded_k / t.scale_group;
  if (t.starts) l.starts = t.padded_k / t.group;
  if (t.offsets) l.sums = t.padded_k / t.group;
  return l;
}

LeftScratch write_left_step(const graph::Graph& g, const DotProblem& p, const MatrixPlan& t, const machine::Machine& m,
                            Synthesis& out) {
  const DotProblem only_a = p.only_a();
  const LeftLayout layout = left_layout(p, t);
  auto add = [&](int64_t bytes) {
    if (bytes == 0) return -1;
    out.scratch.push_back(bytes);
    return static_cast<int>(out.scratch.size()) - 1;
  };
  LeftScratch s;
  s.codes = add(layout.code_bytes());
  s.scales = add(layout.rows * layout.scales * 4);
  s.starts = add(layout.rows * layout.starts * 4);
  s.sums = add(layout.rows * layout.sums * 4);
  out.steps.push_back(LeftWriter(g, only_a, t, layout, s, m.f32_lanes()).write());
  return s;
}

}  // namespace lumen::synth
