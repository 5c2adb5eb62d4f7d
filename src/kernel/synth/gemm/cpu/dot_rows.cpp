// One group of b's rows at a time, all of a's rows beside it; sums in registers, one vector each. Where lanes step
// together in waves, a wave takes a group: each lane its share of K, and the lanes' sums are added at the end.
#include "kernel/synth/gemm/cpu/dot_rows.h"

#include <functional>
#include <memory>
#include <numeric>

#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/pack.h"
#include "kernel/synth/gemm/wave_groups.h"
#include "kernel/synth/order/factor.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {
namespace {

using Value = loop::ValueId;
using loop::LoopKind;
using loop::VType;

class RowsKernel {
 public:
  RowsKernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m)
      : p_(p), t_(t), m_(m), w_(g, p, "dot"), b_(w_.b) {
    if (p.loads[1].kind == DotLoad::Kind::packed) find_scale(*p.loads[1].format);
  }

  Step write(std::string plan) {
    if (m_.wave > 1)
      write_blocks();
    else
      b_.loop(LoopKind::parallel, w_.i64(0), w_.i64(p_.outer_extent() * t_.n_tasks), 1,
              [&](Value task) { write_task(task); });
    return w_.step(std::move(plan));
  }

 private:
  void write_task(Value task);
  void write_blocks();
  void declare_sums();
  // Steps of `step` along K from `from` to `to`, or those of them that are this lane's.
  void along_k(int64_t from, int64_t to, int64_t step, const std::function<void(Value)>& body);
  void write_group(Value n);
  void sum_memory(const std::vector<Value>& rows);
  void sum_packed(const std::vector<Value>& rows);
  size_t slot(int i, int j, int chain) const { return static_cast<size_t>((i * t_.width + j) * t_.chains + chain); }
  Value read(loop::BufferId sum) { return b_.load(sum, {Scalar::f32, t_.lanes}, w_.i64(0), 4); }
  Value sum(int i, int j);  // over the chains
  void find_scale(const Format& f);
  // `to`, or the sums of a chain, += products of `right` (one vector per row of b) with a at k.
  void products(const std::vector<loop::BufferId>* to, int64_t vector, Value k, const std::vector<Value>& right,
                Value count);
  void sum_run(std::vector<std::unique_ptr<Unpack>>& cursors, Value k, int64_t first, int64_t count,
               const RoutineExpr* value, const std::vector<loop::BufferId>* to);

  const DotProblem& p_;
  RowsPlan t_;
  const machine::Machine& m_;
  DotWriter w_;
  loop::Builder& b_;
  std::vector<loop::BufferId> sums_, partial_;
  std::optional<ScaledForm> form_;  // scales are applied to sums of values: of a group, or of the row
  bool whole_rows_ = false;
  std::vector<Value> row_scales_;
  WaveGroup wave_;  // no lane: this task has all of K
};

// Scales that stay the same over vectors wait until these are added.
void RowsKernel::find_scale(const Format& f) {
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || facts.scaled->offset || !facts.scaled->scale) return;
  const int64_t unit = unpack_unit(f, t_.lanes);
  whole_rows_ = is_constant_in_row(f, *facts.scaled->scale);
  if (!whole_rows_ && (facts.scaled->group % (2 * t_.lanes) != 0 ||
                       std::gcd(facts.scaled->group, unit) < 2 * t_.lanes || f.block % t_.lanes != 0))
    return;
  form_ = facts.scaled;
  if (!whole_rows_) t_.chains = 1;  // sums of groups do not wait for each other
}

void RowsKernel::write_task(Value task) {
  const Value first = w_.scaled(b_.op(ScalarOp::rem_, task, w_.i64(t_.n_tasks)), t_.n_task * t_.width);
  w_.enter_outer(b_.op(ScalarOp::div_, task, w_.i64(t_.n_tasks)));
  const Value last = w_.min(w_.add(first, w_.i64(t_.n_task * t_.width)), w_.i64(p_.n.extent));
  w_.where_row(w_.i64(0), [&] {
    declare_sums();
    b_.loop(LoopKind::serial, first, last, t_.width, [&](Value n) { write_group(n); });
  });
}

void RowsKernel::declare_sums() {
  for (int i = 0; i < t_.height * t_.width * t_.chains; ++i) sums_.push_back(b_.alloc(t_.lanes * 4));
  for (int i = 0; form_ && !whole_rows_ && i < t_.height * t_.width; ++i) partial_.push_back(b_.alloc(t_.lanes * 4));
}

void RowsKernel::write_blocks() {
  const int64_t groups = (p_.n.extent + t_.width - 1) / t_.width;
  each_wave(w_, p_.outer_extent(), groups, m_.wave, [&](const WaveGroup& g) {
    wave_ = g;
    w_.enter_outer(g.outer);
    declare_sums();
    write_group(w_.scaled(g.group, t_.width));
  });
}

void RowsKernel::along_k(int64_t from, int64_t to, int64_t step, const std::function<void(Value)>& body) {
  if (from >= to) return;
  const Value first = wave_.lane < 0 ? w_.i64(from) : w_.add(w_.i64(from), w_.scaled(wave_.lane, step));
  b_.loop(LoopKind::serial, first, w_.i64(to), wave_.lane < 0 ? step : step * m_.wave, body);
}

Value RowsKernel::sum(int i, int j) {
  std::vector<Value> parts;
  for (int chain = 0; chain < t_.chains; ++chain) parts.push_back(read(sums_[slot(i, j, chain)]));
  for (; parts.size() > 1; parts.resize((parts.size() + 1) / 2))
    for (size_t c = 0; c < parts.size() / 2; ++c) parts[c] = b_.add(parts[c], parts[(parts.size() + 1) / 2 + c]);
  return parts[0];
}

void RowsKernel::products(const std::vector<loop::BufferId>* to, int64_t vector, Value k,
                          const std::vector<Value>& right, Value count) {
  const int chain = static_cast<int>(vector % t_.chains);
  for (int i = 0; i < t_.height; ++i) {
    const Value at = w_.add(w_.base(0), w_.add(k, w_.i64(i * p_.m.strides[0])));
    const Value left = w_.read_f32(0, at, 1, b_.type(right[0]).lanes, count);
    for (int j = 0; j < t_.width; ++j) {
      const loop::BufferId sum = to ? (*to)[static_cast<size_t>(i * t_.width + j)] : sums_[slot(i, j, chain)];
      b_.store(sum, b_.op(ScalarOp::fma_, left, right[j], read(sum)), w_.i64(0), 4);
    }
  }
}

void RowsKernel::sum_memory(const std::vector<Value>& rows) {
  const int64_t k = p_.k.extent, unit = int64_t{t_.lanes} * t_.chains, whole = k / unit * unit;
  auto step = [&](Value at, int64_t vector, Value count) {
    std::vector<Value> right;
    for (Value row : rows) right.push_back(w_.read_f32(1, w_.add(row, at), 1, t_.lanes, count));
    products(nullptr, vector, at, right, count);
  };
  along_k(0, whole, unit, [&](Value at) {
    for (int64_t vector = 0; vector < t_.chains; ++vector) step(w_.add(at, w_.i64(vector * t_.lanes)), vector, -1);
  });
  const auto rest = [&] {
    for (int64_t at = whole; at < k; at += t_.lanes)
      step(w_.i64(at), (at - whole) / t_.lanes, k - at < t_.lanes ? w_.i64(k - at) : -1);
  };
  if (wave_.lane < 0)
    rest();
  else if (whole < k)
    b_.branch(b_.op(ScalarOp::eq_, wave_.lane, w_.i64(0)), rest);
}

// Elements first .. first + count of the entered blocks, which begin at k.
void RowsKernel::sum_run(std::vector<std::unique_ptr<Unpack>>& cursors, Value k, int64_t first, int64_t count,
                         const RoutineExpr* value, const std::vector<loop::BufferId>* to) {
  for (int64_t position = first; position < first + count; position += t_.lanes) {
    const int lanes = static_cast<int>(std::min<int64_t>(t_.lanes, first + count - position));
    std::vector<Value> right;
    for (auto& cursor : cursors) {
      Value v = value ? cursor->expression(*value, position, lanes, true) : cursor->values(position, lanes);
      if (lanes < t_.lanes) {  // the rest of the vector is zero
        std::vector<int> mask(static_cast<size_t>(t_.lanes), -1);
        for (int lane = 0; lane < lanes; ++lane) mask[static_cast<size_t>(lane)] = lane;
        v = lanes == 1 ? b_.insert(w_.zero(t_.lanes), v, 0) : b_.shuffle({v}, mask);
      }
      right.push_back(v);
    }
    products(to, position / t_.lanes, w_.add(k, w_.i64(position)), right, lanes < t_.lanes ? w_.i64(lanes) : -1);
  }
}

void RowsKernel::sum_packed(const std::vector<Value>& rows) {
  const DotLoad& load = p_.loads[1];
  const int64_t block = load.format->block, unit = unpack_unit(*load.format, t_.lanes);
  std::vector<std::unique_ptr<Unpack>> cursors;
  std::vector<Value> first;
  for (Value row : rows) {
    cursors.push_back(std::make_unique<Unpack>(b_, *load.format, w_.buffer(1), load.rows, load.columns));
    cursors.back()->use(m_);
    cursors.back()->enter_tensor();
    cursors.back()->enter_row(b_.op(ScalarOp::div_, row, w_.i64(load.columns)));
    first.push_back(b_.op(ScalarOp::div_, row, w_.i64(block)));
  }
  row_scales_.clear();
  auto run = [&](Value k, int64_t count) {
    const Value ahead = b_.op(ScalarOp::div_, k, w_.i64(block));
    for (size_t j = 0; j < rows.size(); ++j) cursors[j]->enter_block(w_.add(first[j], ahead), count / block);
    if (!form_ || whole_rows_) return sum_run(cursors, k, 0, count, form_ ? &form_->value : nullptr, nullptr);
    const int64_t group = std::gcd(form_->group, count);
    for (int64_t position = 0; position < count; position += group) {
      for (const loop::BufferId s : partial_) b_.store(s, w_.zero(t_.lanes), w_.i64(0), 4);
      sum_run(cursors, k, position, group, &form_->value, &partial_);
      for (int i = 0; i < t_.height; ++i)
        for (int j = 0; j < t_.width; ++j) {
          const Value scale =
              b_.splat(cursors[static_cast<size_t>(j)]->expression(*form_->scale, position, 1, false), t_.lanes);
          const Value part = read(partial_[static_cast<size_t>(i * t_.width + j)]);
          const loop::BufferId to = sums_[slot(i, j, 0)];
          b_.store(to, b_.op(ScalarOp::fma_, part, scale, read(to)), w_.i64(0), 4);
        }
    }
  };
  const int64_t k = p_.k.extent, whole = k / unit * unit;
  along_k(0, whole, unit, [&](Value at) { run(at, unit); });
  along_k(whole, k, block, [&](Value at) { run(at, block); });
  for (size_t j = 0; form_ && whole_rows_ && j < rows.size(); ++j) {
    cursors[j]->enter_block(first[j], 1);
    row_scales_.push_back(cursors[j]->expression(*form_->scale, 0, 1, false));
  }
}

void RowsKernel::write_group(Value n) {
  for (const loop::BufferId s : sums_) b_.store(s, w_.zero(t_.lanes), w_.i64(0), 4);
  std::vector<Value> rows;  // rows that do not exist repeat the last one; their sums are not stored
  for (int j = 0; j < t_.width; ++j) {
    const Value r = w_.add(n, w_.i64(j));
    rows.push_back(w_.add(w_.base(1),
                          w_.scaled(p_.n.extent % t_.width ? w_.min(r, w_.i64(p_.n.extent - 1)) : r, p_.n.strides[1])));
  }
  if (p_.loads[1].kind == DotLoad::Kind::packed)
    sum_packed(rows);
  else
    sum_memory(rows);
  const Value count =
      p_.n.extent % t_.width ? w_.min(b_.op(ScalarOp::sub_, w_.i64(p_.n.extent), n), w_.i64(t_.width)) : -1;
  std::vector<Value> results;
  for (int i = 0; i < t_.height; ++i) {
    Value v = w_.zero(t_.width);
    for (int j = 0; j < t_.width; ++j) {
      Value total = b_.fold(ScalarOp::add_, sum(i, j));
      if (wave_.lane >= 0) total = b_.fold_wave(ScalarOp::add_, total, m_.wave);
      if (!row_scales_.empty()) total = b_.mul(total, row_scales_[static_cast<size_t>(j)]);
      v = t_.width == 1 ? total : b_.insert(v, total, j);
    }
    results.push_back(v);
  }
  const auto finish = [&] {
    for (int i = 0; i < t_.height; ++i) w_.finish_vector(results[static_cast<size_t>(i)], w_.i64(i), n, count);
  };
  if (wave_.lane < 0) return finish();
  once_per_wave(w_, wave_, finish);
}

}  // namespace

Step write_rows_kernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m) {
  Step s = RowsKernel(g, p, t, m).write(describe_shape(p) + " " + describe(t));
  s.flops = p.flops();
  return s;
}

}  // namespace lumen::synth
