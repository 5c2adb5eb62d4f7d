// Two kernels: activations to codes, scales and sums; then rows of the weight meet them. Rounding happens once, in the
// first.
#include "kernel/synth/dot_integer.h"

#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/dot_write.h"
#include "kernel/synth/pack.h"
#include "kernel/synth/unpack.h"

namespace lumen::synth {
namespace {

using Value = loop::ValueId;
using loop::LoopKind;
using loop::VType;

struct Scratch {
  int codes = -1, scales = -1, sums = -1;
};

// Activations to codes, scales and sums. A task takes some groups of a row.
Step write_quantize(const graph::Graph& g, const DotProblem& p, const IntegerDot& d, const ActivationLayout& layout,
                    const Scratch& s, const machine::Machine& m) {
  DotProblem only_a = p;  // reads a, writes scratch: no result, no epilogue
  only_a.loads.resize(1);
  only_a.epilogue.clear();
  only_a.result = -1;
  DotWriter w(g, only_a, "quantize");
  loop::Builder& b = w.b;
  const loop::BufferId codes = w.scratch_param("codes", s.codes, layout.code_bytes(), true);
  const loop::BufferId scales = w.scratch_param("scales", s.scales, layout.scale_bytes(), true);
  const loop::BufferId sums = w.scratch_param("sums", s.sums, layout.sum_bytes(), true);
  const int lanes = m.f32_lanes();
  const int64_t groups = layout.groups(), per_task = 32;
  const int64_t parts = (groups + per_task - 1) / per_task;
  const VType vector{Scalar::f32, lanes};
  const float lanes_of_sum = static_cast<float>(layout.sum_group / d.row.k);
  b.loop(LoopKind::parallel, w.i64(0), w.i64(layout.rows * parts), 1, [&](Value task) {
    const Value row = b.op(ScalarOp::div_, task, w.i64(parts));
    const Value first = w.scaled(b.op(ScalarOp::rem_, task, w.i64(parts)), per_task);
    w.enter_outer(b.op(ScalarOp::div_, row, w.i64(p.m.extent)));
    const Value x = w.add(w.base(0), w.scaled(b.op(ScalarOp::rem_, row, w.i64(p.m.extent)), p.m.strides[0]));
    b.loop(LoopKind::serial, first, w.min(w.add(first, w.i64(per_task)), w.i64(groups)), 1, [&](Value group) {
      const Value k0 = w.scaled(group, kActivationGroup);
      std::vector<Value> parts_of_group;
      Value most = -1;
      for (int64_t at = 0; at < kActivationGroup; at += lanes) {
        const Value k = w.add(k0, w.i64(at));
        Value count = -1;
        if (layout.padded != layout.columns) {
          count = b.op(ScalarOp::sub_, w.i64(layout.columns), k);
          count = b.op(ScalarOp::max_, w.min(count, w.i64(lanes)), w.i64(0));
        }
        const Value v = b.load(w.buffer(0), vector, w.scaled(w.add(x, k), 4), 4, count);
        parts_of_group.push_back(v);
        const Value size = b.op(ScalarOp::abs_, v);
        most = most < 0 ? size : b.op(ScalarOp::max_, most, size);
      }
      const Value largest = b.fold(ScalarOp::max_, most);
      const VType one{Scalar::f32, 1};
      const Value zero = b.real(0, one), full = b.real(127, one);
      const Value inverse =
          b.op(ScalarOp::select_, b.op(ScalarOp::lt_, zero, largest), b.op(ScalarOp::div_, full, largest), zero);
      const Value scale = b.op(ScalarOp::div_, largest, full);
      const Value place = w.add(w.scaled(row, groups), group);
      b.store(scales, scale, w.scaled(place, 4), 4);
      const Value sum_place = w.scaled(place, kActivationGroup / layout.sum_group);
      Value total = -1;
      for (int64_t i = 0; i < kActivationGroup / lanes; ++i) {
        const Value scaled =
            b.op(ScalarOp::rint_, b.mul(parts_of_group[static_cast<size_t>(i)], b.splat(inverse, lanes)));
        const Value code = b.convert(ScalarOp::cast_, Scalar::i32, scaled);
        total = total < 0 ? code : b.add(total, code);
        const Value at = w.add(w.add(w.scaled(row, layout.padded), k0), w.i64(i * lanes));
        b.store(codes, b.convert(ScalarOp::cast_, Scalar::i8, code), at);
        if ((i + 1) * lanes % layout.sum_group != 0) continue;
        const Value sum = b.convert(ScalarOp::cast_, Scalar::f32, b.fold(ScalarOp::add_, total));
        const Value number = w.add(sum_place, w.i64(i * lanes / layout.sum_group));
        b.store(sums, b.op(ScalarOp::div_, b.mul(scale, sum), b.real(lanes_of_sum, one)), w.scaled(number, 4), 4);
        total = -1;
      }
    });
  });
  Step step = w.step(fmt::format("quantize {}x{} i8 groups of {}", layout.rows, layout.columns, kActivationGroup));
  return step;
}

class IntegerKernel {
 public:
  IntegerKernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                const machine::Machine& m, const ActivationLayout& layout, const Scratch& s)
      : p_(p), t_(t), d_(d), m_(m), layout_(layout), w_(g, p, "dot"), b_(w_.b) {
    codes_ = w_.scratch_param("codes", s.codes, layout.code_bytes(), false);
    scales_ = w_.scratch_param("scales", s.scales, layout.scale_bytes(), false);
    totals_ = w_.scratch_param("sums", s.sums, layout.sum_bytes(), false);
  }

  Step write(std::string plan) {
    b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * t_.n_tasks), 1, [&](Value task) {
      const Value first = w_.scaled(b_.op(ScalarOp::rem_, task, w_.i64(t_.n_tasks)), t_.n_task * t_.width);
      outer_ = b_.op(ScalarOp::div_, task, w_.i64(t_.n_tasks));
      w_.enter_outer(outer_);
      const Value last = w_.min(w_.add(first, w_.i64(t_.n_task * t_.width)), w_.i64(p_.n.extent));
      for (int i = 0; i < t_.height * t_.width; ++i) sums_.push_back(b_.alloc(d_.row.lanes * 4));
      b_.loop(LoopKind::serial, first, last, t_.width, [&](Value n) { write_group(n); });
    });
    return w_.step(std::move(plan));
  }

 private:
  VType vector() const { return {Scalar::f32, d_.row.lanes}; }
  Value sum(int i, int j) { return b_.load(sums_[i * t_.width + j], vector(), w_.i64(0), 4); }
  void write_group(Value n);
  Value codes_at(Unpack& cursor, int64_t position, int count);
  Value per_lane(Unpack& cursor, const RoutineExpr& e, int64_t position, int count);
  Value activation_lanes(loop::BufferId buffer, Value row_first, Value k, int64_t group);
  Value integer_dot(Value q, Value x);

  const DotProblem& p_;
  const RowsPlan& t_;
  const IntegerDot& d_;
  const machine::Machine& m_;
  const ActivationLayout& layout_;
  DotWriter w_;
  loop::Builder& b_;
  loop::BufferId codes_, scales_, totals_;
  std::vector<loop::BufferId> sums_;
  Value outer_ = -1;
};

// q' of `count` elements as the row's type, zero beyond them.
Value IntegerKernel::codes_at(Unpack& cursor, int64_t position, int count) {
  const int whole = static_cast<int>(d_.step());
  auto padded = [&](Value v) {
    if (count == whole) return v;
    std::vector<int> mask(static_cast<size_t>(whole), -1);
    for (int i = 0; i < count; ++i) mask[static_cast<size_t>(i)] = i;
    return b_.shuffle({v}, mask);
  };
  if (!d_.table.empty()) {  // lanes beyond the count look up entry 0: harmless, for their activations are zero
    std::vector<int64_t> entries;
    for (int i = 0; i < whole; ++i) entries.push_back(d_.table[static_cast<size_t>(i % 16)] & 255);
    const VType bytes{Scalar::u8, whole};
    const Value index = padded(cursor.codes(d_.code_field, position, count, true));
    const Value found =
        b_.inst(fmt::format("lookup16.u8x{}", whole), bytes, {b_.lanes_integer(entries, Scalar::u8), index});
    if (d_.row.a == Scalar::u8) return found;
    return b_.convert(ScalarOp::cast_, d_.row.a, b_.convert(ScalarOp::bitcast_, Scalar::i8, found));
  }
  Value q = cursor.expression(d_.form.q, position, count, true);
  const Scalar type = b_.type(q).scalar;
  if (d_.bias != 0) q = b_.op(ScalarOp::sub_, q, b_.integer(d_.bias, {type, count}));
  return padded(b_.convert(ScalarOp::cast_, d_.row.a, q));
}

// An expression constant over groups, for each lane of the sums.
Value IntegerKernel::per_lane(Unpack& cursor, const RoutineExpr& e, int64_t position, int count) {
  const int64_t group = std::min<int64_t>(d_.group, d_.step());
  const int groups = static_cast<int>((count + group - 1) / group);
  std::vector<Value> values;
  for (int i = 0; i < groups; ++i) values.push_back(cursor.expression(e, position + i * group, 1, false));
  if (groups == 1) return b_.splat(values[0], d_.row.lanes);
  Value few = b_.splat(values[0], groups);
  for (int i = 1; i < groups; ++i) few = b_.insert(few, values[static_cast<size_t>(i)], i);
  std::vector<int> mask;
  for (int lane = 0; lane < d_.row.lanes; ++lane)
    mask.push_back(std::min(groups - 1, static_cast<int>(lane * d_.row.k / group)));
  return b_.shuffle({few}, mask);
}

// Numbers the activations have one of per `group` elements, for each lane of the sums.
Value IntegerKernel::activation_lanes(loop::BufferId buffer, Value row_first, Value k, int64_t group) {
  const Value at = w_.scaled(w_.add(row_first, b_.op(ScalarOp::div_, k, w_.i64(group))), 4);
  const int groups = static_cast<int>(d_.step() / group);
  if (groups <= 1) return b_.splat(b_.load(buffer, {Scalar::f32, 1}, at, 4), d_.row.lanes);
  const Value few = b_.load(buffer, {Scalar::f32, groups}, at, 4);
  std::vector<int> mask;
  for (int lane = 0; lane < d_.row.lanes; ++lane) mask.push_back(lane * d_.row.k / static_cast<int>(group));
  return b_.shuffle({few}, mask);
}

// i32 lanes: the products of k neighbours, added.
Value IntegerKernel::integer_dot(Value q, Value x) {
  const machine::DotRow& row = d_.row;
  const VType result{row.acc, row.lanes};
  if (row.b != Scalar::i8) x = b_.convert(ScalarOp::cast_, row.b, x);
  if (row.accumulates) return b_.inst(row.row, result, {b_.integer(0, result), q, x});
  if (row.pairs.empty()) return b_.inst(row.row, result, {q, x});
  const loop::Function* first = m_.meaning(row.row);
  const VType half = first->body.value_types[first->result];
  const Value products = b_.inst(row.row, half, {q, x});
  if (!row.pairs_ones) return b_.inst(row.pairs, result, {products});
  return b_.inst(row.pairs, result, {products, b_.integer(1, half)});
}

void IntegerKernel::write_group(Value n) {
  const DotLoad& load = p_.loads[1];
  const int64_t block = load.format->block, step = d_.step();
  for (const loop::BufferId s : sums_) b_.store(s, w_.zero(d_.row.lanes), w_.i64(0), 4);
  std::vector<std::unique_ptr<Unpack>> cursors;
  std::vector<Value> first;
  for (int j = 0; j < t_.width; ++j) {
    Value r = w_.add(n, w_.i64(j));
    if (p_.n.extent % t_.width) r = w_.min(r, w_.i64(p_.n.extent - 1));  // repeats the last row; not stored
    const Value element = w_.add(w_.base(1), w_.scaled(r, p_.n.strides[1]));
    cursors.push_back(std::make_unique<Unpack>(b_, *load.format, w_.buffer(1), load.rows, load.columns));
    cursors.back()->enter_tensor();
    cursors.back()->enter_row(b_.op(ScalarOp::div_, element, w_.i64(load.columns)));
    first.push_back(b_.op(ScalarOp::div_, element, w_.i64(block)));
  }
  std::vector<Value> x_rows;  // rows of the quantized activations
  for (int i = 0; i < t_.height; ++i) x_rows.push_back(w_.add(w_.scaled(outer_, p_.m.extent), w_.i64(i)));

  const bool corrects = d_.bias != 0 || d_.form.offset.has_value();
  auto run = [&](Value k, int64_t count) {
    const Value ahead = b_.op(ScalarOp::div_, k, w_.i64(block));
    for (int j = 0; j < t_.width; ++j)
      cursors[static_cast<size_t>(j)]->enter_block(w_.add(first[static_cast<size_t>(j)], ahead), count / block);
    for (int64_t position = 0; position < count; position += step) {
      const int here = static_cast<int>(std::min(step, count - position));
      const Value at = w_.add(k, w_.i64(position));
      std::vector<Value> q, scale, correction;
      for (auto& cursor : cursors) {
        q.push_back(codes_at(*cursor, position, here));
        scale.push_back(per_lane(*cursor, d_.form.scale, position, here));
        Value c = -1;
        if (d_.form.offset) c = per_lane(*cursor, *d_.form.offset, position, here);
        if (d_.bias != 0) {
          const Value shifted = b_.mul(scale.back(), b_.real(static_cast<double>(d_.bias), vector()));
          c = c < 0 ? shifted : b_.add(shifted, c);
        }
        correction.push_back(c);
      }
      for (int i = 0; i < t_.height; ++i) {
        const Value row = x_rows[static_cast<size_t>(i)];
        const Value x =
            b_.load(codes_, {Scalar::i8, static_cast<int>(step)}, w_.add(w_.scaled(row, layout_.padded), at));
        const Value x_scale = activation_lanes(scales_, w_.scaled(row, layout_.groups()), at, kActivationGroup);
        const Value x_sum =
            corrects ? activation_lanes(totals_, w_.scaled(row, layout_.sums()), at, layout_.sum_group) : -1;
        for (int j = 0; j < t_.width; ++j) {
          const Value dot = b_.convert(ScalarOp::cast_, Scalar::f32, integer_dot(q[static_cast<size_t>(j)], x));
          Value s = b_.op(ScalarOp::fma_, dot, b_.mul(scale[static_cast<size_t>(j)], x_scale), sum(i, j));
          if (corrects) s = b_.op(ScalarOp::fma_, correction[static_cast<size_t>(j)], x_sum, s);
          b_.store(sums_[static_cast<size_t>(i * t_.width + j)], s, w_.i64(0), 4);
        }
      }
    }
  };
  // Whole blocks and whole instructions together; what is left, padded with zeros.
  const int64_t k = p_.k.extent, unit = std::lcm(block, step), whole = k / unit * unit;
  b_.loop(LoopKind::serial, w_.i64(0), w_.i64(whole), unit, [&](Value at) { run(at, unit); });
  if (whole < k) run(w_.i64(whole), k - whole);

  const Value count =
      p_.n.extent % t_.width ? w_.min(b_.op(ScalarOp::sub_, w_.i64(p_.n.extent), n), w_.i64(t_.width)) : -1;
  for (int i = 0; i < t_.height; ++i) {
    Value v = w_.zero(t_.width);
    for (int j = 0; j < t_.width; ++j) {
      const Value total = b_.fold(ScalarOp::add_, sum(i, j));
      v = t_.width == 1 ? total : b_.insert(v, total, j);
    }
    w_.finish_vector(v, w_.i64(i), n, count);
  }
}

}  // namespace

bool integer_possible(const DotProblem& p) {
  return p.loads[1].kind == DotLoad::Kind::packed && rows_possible(p);
}

void write_integer_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                           const machine::Machine& m, Synthesis& out) {
  ActivationLayout layout;
  layout.rows = p.outer_extent() * p.m.extent;
  layout.columns = p.k.extent;
  layout.sum_group = d.sum_group;
  const int64_t unit = std::lcm(d.step(), kActivationGroup);
  layout.padded = (p.k.extent + unit - 1) / unit * unit;
  Scratch s;
  s.codes = static_cast<int>(out.scratch.size());
  s.scales = s.codes + 1;
  s.sums = s.codes + 2;
  out.scratch.insert(out.scratch.end(), {layout.code_bytes(), layout.scale_bytes(), layout.sum_bytes()});
  out.steps.push_back(write_quantize(g, p, d, layout, s, m));
  Step step = IntegerKernel(g, p, t, d, m, layout, s)
                  .write(fmt::format("{} rows {}x{} task {} {}", describe_shape(p), t.height, t.width,
                                     t.n_task * t.width, d.row.row));
  step.flops = p.flops();
  out.steps.push_back(std::move(step));
}

}  // namespace lumen::synth
