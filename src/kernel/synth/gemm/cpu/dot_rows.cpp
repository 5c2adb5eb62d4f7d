// One group of b's rows at a time, with all of a's rows; each sum is one vector in a register. On machines with waves,
// a wave takes a group: each lane its share of K, and the lanes' sums are reduced at the end.
#include "kernel/synth/gemm/cpu/dot_rows.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include "base/round_up.h"
#include "kernel/synth/gemm/code_words.h"
#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/pack.h"
#include "kernel/synth/order/factor.h"

namespace lumen::synth {
namespace {

class RowsKernel : ProductWriter {
 public:
  RowsKernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m)
      : ProductWriter(g, p, t, m), t_(t), m_(m) {
    if (p.loads[1].kind == DotLoad::Kind::packed) find_scale(*p.loads[1].format);
  }

  Step write(std::string plan) {
    const auto enter = [&](Expr n) {
      if (t_.fills_panel()) enter_panel(n);
    };
    return ProductWriter::write(std::move(plan), [&] { declare_sums(); }, enter, [&](Expr n) { write_group(n); });
  }

 private:
  void declare_sums();
  // Steps of `step` along K from `from` to `to`; with waves, only those of this lane.
  void along_k(int64_t from, int64_t to, int64_t step, const std::function<void(Expr)>& body);
  // Whole units of K, then its last blocks: where a run begins, and the number of its first vector in a panel.
  void each_run(const std::function<void(Expr k, int64_t count, Expr vector)>& body);
  std::vector<Expr> rows_from(Expr n);
  void enter_panel(Expr n);
  void write_group(Expr n);
  void multiply_memory(int chain);
  void multiply_panel(int chain);
  void sum_memory(const std::vector<Expr>& rows);
  void sum_codes(const std::vector<Expr>& rows);
  void sum_packed(const std::vector<Expr>& rows);
  int64_t vectors_of(int64_t run) const { return ceil_div(run, int64_t{t_.lanes}); }
  Expr place_in_panel(Expr vector, int j) const {  // byte
    return vector * (int64_t{t_.width} * t_.lanes * 4) + int64_t{j} * t_.lanes * 4;
  }
  size_t slot(int i, int j, int chain) const { return (i * t_.width + j) * t_.chains + chain; }
  Expr read(BufferId sum) { return b_.load(sum, {p_.sum, t_.lanes}, w_.i64(0), 4); }
  Expr sum(int i, int j);  // over the chains
  bool is_shifted() const { return t_.row && t_.row->shift != 0; }
  void find_scale(const Format& f);
  // Adds products of `right` (one vector per row of b) with a at k to `to`, or to the sums of a chain.
  void products(const std::vector<BufferId>* to, int64_t vector, Expr k, const std::vector<Expr>& right, Expr count);
  Expr values(Unpack& cursor, int64_t position, int lanes, const RoutineExpr* value);
  void sum_run(std::vector<std::unique_ptr<Unpack>>& cursors, Expr k, int64_t first, int64_t count,
               const RoutineExpr* value, const std::vector<BufferId>* to);
  void add_scaled(int i, int j, Expr scale);  // the partial sum of row i of a and row j of b to their sum

  RowsPlan t_;
  const machine::Machine& m_;
  std::vector<BufferId> sums_, partial_;
  std::vector<BufferId> shift_sums_;  // products of the shift of a's codes, by row of b and chain
  std::optional<ScaledForm> form_;    // scales are applied to sums of values: of a group, or of the row
  bool whole_rows_ = false;
  std::vector<Expr> row_scales_;
  std::vector<Expr> rows_;  // of the panel
  BufferId panel_ = -1, panel_scales_ = -1;
};

// Scales that are constant over several vectors are applied after these are added.
void RowsKernel::find_scale(const Format& f) {
  const FormatFacts facts = facts_of(f);
  if (!facts.scaled || facts.scaled->offset || !facts.scaled->scale) return;
  const int64_t unit = unpack_unit(f, t_.lanes);
  whole_rows_ = is_constant_in_row(f, *facts.scaled->scale);
  if (!whole_rows_ && (facts.scaled->group % (2 * t_.lanes) != 0 ||
                       std::gcd(facts.scaled->group, unit) < 2 * t_.lanes || f.block % t_.lanes != 0))
    return;
  form_ = facts.scaled;
  if (!whole_rows_) t_.chains = 1;  // sums of groups are independent already
}

void RowsKernel::declare_sums() {
  for (int i = 0; i < t_.height * t_.width * t_.chains; ++i) sums_.push_back(b_.alloc(t_.lanes * 4));
  for (int i = 0; is_shifted() && i < t_.width * t_.chains; ++i) shift_sums_.push_back(b_.alloc(t_.lanes * 4));
  for (int i = 0; form_ && !whole_rows_ && i < t_.height * t_.width; ++i) partial_.push_back(b_.alloc(t_.lanes * 4));
  const DotLoad& b = p_.loads[1];
  if (!t_.fills_panel() || b.kind != DotLoad::Kind::packed) return;
  const int64_t unit = unpack_unit(*b.format, t_.lanes), whole = p_.k.extent / unit * unit;
  const int64_t vectors =
      whole / unit * vectors_of(unit) + (p_.k.extent - whole) / b.format->block * vectors_of(b.format->block);
  panel_ = b_.alloc(vectors * t_.width * t_.lanes * 4);
  if (form_ && !whole_rows_) panel_scales_ = b_.alloc(vectors * t_.width * 4);
}

void RowsKernel::along_k(int64_t from, int64_t to, int64_t step, const std::function<void(Expr)>& body) {
  if (from >= to) return;
  const Expr first = by_waves() ? from + wave_.lane * step : w_.i64(from);
  b_.loop(LoopKind::serial, first, w_.i64(to), by_waves() ? step * m_.wave : step, body);
}

Expr RowsKernel::sum(int i, int j) {
  std::vector<Expr> parts;
  for (int chain = 0; chain < t_.chains; ++chain) {
    const Expr part = read(sums_[slot(i, j, chain)]);
    parts.push_back(is_shifted() ? part - read(shift_sums_[j * t_.chains + chain]) : part);
  }
  for (; parts.size() > 1; parts.resize((parts.size() + 1) / 2))
    for (size_t c = 0; c < parts.size() / 2; ++c) parts[c] = parts[c] + parts[(parts.size() + 1) / 2 + c];
  return parts[0];
}

void RowsKernel::products(const std::vector<BufferId>* to, int64_t vector, Expr k, const std::vector<Expr>& right,
                          Expr count) {
  const int chain = vector % t_.chains;
  for (int i = 0; i < t_.height; ++i) {
    const Expr at = w_.base(0) + (k + i * p_.m.strides[0]);
    const Expr left = w_.read_f32(0, at, 1, b_.type(right[0]).lanes, count);
    for (int j = 0; j < t_.width; ++j) {
      const BufferId sum = to ? (*to)[i * t_.width + j] : sums_[slot(i, j, chain)];
      b_.store(sum, fma(left, right[j], read(sum)), w_.i64(0), 4);
    }
  }
}

void RowsKernel::sum_memory(const std::vector<Expr>& rows) {
  const int64_t k = p_.k.extent, unit = int64_t{t_.lanes} * t_.chains, whole = k / unit * unit;
  auto step = [&](Expr at, int64_t vector, Expr count) {
    std::vector<Expr> right;
    for (Expr row : rows) right.push_back(w_.read_f32(1, row + at, 1, t_.lanes, count));
    products(nullptr, vector, at, right, count);
  };
  along_k(0, whole, unit, [&](Expr at) {
    for (Expr row : rows) ask_ahead_of_numbers(row, at, unit);
    for (int64_t vector = 0; vector < t_.chains; ++vector) step(at + vector * t_.lanes, vector, {});
  });
  const auto rest = [&] {
    for (int64_t at = whole; at < k; at += t_.lanes)
      step(w_.i64(at), (at - whole) / t_.lanes, k - at < t_.lanes ? w_.i64(k - at) : Expr{});
  };
  if (!by_waves())
    rest();
  else if (whole < k)
    b_.branch(wave_.lane == 0, rest);
}

void RowsKernel::sum_codes(const std::vector<Expr>& rows) {
  const int64_t k = p_.k.extent, vector = int64_t{t_.lanes} * t_.row->k, unit = vector * t_.chains,
                whole = k / unit * unit;
  auto step = [&](Expr at, int chain, int64_t numbers) {
    std::vector<Expr> right;
    for (Expr row : rows) right.push_back(read_words(w_, *t_.row, 1, row + at, t_.lanes, numbers));
    for (int j = 0; is_shifted() && j < t_.width; ++j) {
      const BufferId sum = shift_sums_[j * t_.chains + chain];
      b_.store(sum, add_shift(b_, *t_.row, right[j], read(sum)), w_.i64(0), 4);
    }
    for (int i = 0; i < t_.height; ++i) {
      const Expr from = w_.base(0) + (at + i * p_.m.strides[0]);
      const Expr left = read_words(w_, *t_.row, 0, from, t_.lanes, numbers);
      for (int j = 0; j < t_.width; ++j) {
        const BufferId sum = sums_[slot(i, j, chain)];
        b_.store(sum, add_dot(b_, *t_.row, right[j], left, read(sum)), w_.i64(0), 4);
      }
    }
  };
  along_k(0, whole, unit, [&](Expr at) {
    for (Expr row : rows) ask_ahead_of_numbers(row, at, unit);
    for (int chain = 0; chain < t_.chains; ++chain) step(at + chain * vector, chain, vector);
  });
  for (int64_t at = whole; at < k; at += vector) step(w_.i64(at), (at - whole) / vector, std::min(vector, k - at));
}

// `lanes` numbers of the entered blocks; the rest of the vector is zero.
Expr RowsKernel::values(Unpack& cursor, int64_t position, int lanes, const RoutineExpr* value) {
  const Expr v = value ? cursor.expression(*value, position, lanes, true) : cursor.values(position, lanes);
  if (lanes == t_.lanes) return v;
  std::vector<int> mask(t_.lanes, -1);
  for (int lane = 0; lane < lanes; ++lane) mask[lane] = lane;
  return lanes == 1 ? b_.insert(w_.zero(t_.lanes), v, 0) : b_.shuffle({v}, mask);
}

// Adds elements first .. first + count of the entered blocks, which begin at k.
void RowsKernel::sum_run(std::vector<std::unique_ptr<Unpack>>& cursors, Expr k, int64_t first, int64_t count,
                         const RoutineExpr* value, const std::vector<BufferId>* to) {
  for (int64_t position = first; position < first + count; position += t_.lanes) {
    const int lanes = std::min<int64_t>(t_.lanes, first + count - position);
    std::vector<Expr> right;
    for (auto& cursor : cursors) right.push_back(values(*cursor, position, lanes, value));
    products(to, position / t_.lanes, k + position, right, lanes < t_.lanes ? w_.i64(lanes) : Expr{});
  }
}

void RowsKernel::add_scaled(int i, int j, Expr scale) {
  const Expr part = read(partial_[i * t_.width + j]);
  const BufferId to = sums_[slot(i, j, 0)];
  b_.store(to, fma(part, scale, read(to)), w_.i64(0), 4);
}

void RowsKernel::each_run(const std::function<void(Expr, int64_t, Expr)>& body) {
  const Format& f = *p_.loads[1].format;
  const int64_t k = p_.k.extent, unit = unpack_unit(f, t_.lanes), whole = k / unit * unit;
  along_k(0, whole, unit, [&](Expr at) { body(at, unit, at / unit * vectors_of(unit)); });
  along_k(whole, k, f.block, [&](Expr at) {
    body(at, f.block, (at - whole) / f.block * vectors_of(f.block) + whole / unit * vectors_of(unit));
  });
}

// Unpacks rows of b, a vector of each after the other; rows that are f32 in memory are read from there.
void RowsKernel::enter_panel(Expr n) {
  rows_ = rows_from(n);
  if (p_.loads[1].kind != DotLoad::Kind::packed) return;
  const DotLoad& load = p_.loads[1];
  std::vector<std::unique_ptr<Unpack>> cursors;
  for (Expr row : rows_) {
    cursors.push_back(cursor_of_b());
    cursors.back()->use(m_);
    cursors.back()->enter_tensor();
    cursors.back()->enter_row(row / load.columns);
  }
  each_run([&](Expr k, int64_t count, Expr vector) {
    for (int j = 0; j < t_.width; ++j) {
      const Expr first = rows_[j] / load.format->block, ahead = k / load.format->block;
      ask_ahead_of_blocks(first, ahead, count / load.format->block);
      cursors[j]->enter_block(first + ahead, count / load.format->block);
      for (int64_t position = 0; position < count; position += t_.lanes) {
        const int lanes = std::min<int64_t>(t_.lanes, count - position);
        b_.store(panel_, values(*cursors[j], position, lanes, form_ ? &form_->value : nullptr),
                 place_in_panel(vector + position / t_.lanes, j), t_.lanes * 4);
      }
      if (!form_ || whole_rows_) continue;
      const int64_t group = std::gcd(form_->group, count);
      for (int64_t position = 0; position < count; position += group)
        b_.store(panel_scales_, cursors[j]->expression(*form_->scale, position, 1, false),
                 place_in_panel(vector + position / t_.lanes, j) / t_.lanes, 4);
    }
  });
  row_scales_.clear();
  for (int j = 0; form_ && whole_rows_ && j < t_.width; ++j) {
    cursors[j]->enter_block(rows_[j] / load.format->block, 1);
    row_scales_.push_back(cursors[j]->expression(*form_->scale, 0, 1, false));
  }
}

// Adds the products of one chain of every sum, so that only these sums are in registers.
void RowsKernel::multiply_memory(int chain) {
  const int64_t k = p_.k.extent, unit = int64_t{t_.lanes} * t_.chains, whole = k / unit * unit;
  const auto step = [&](Expr at, Expr count) {
    std::vector<Expr> right;
    for (Expr row : rows_) right.push_back(w_.read_f32(1, row + at, 1, t_.lanes, count));
    products(nullptr, chain, at, right, count);
  };
  along_k(0, whole, unit, [&](Expr at) { step(at + chain * t_.lanes, {}); });
  if (const int64_t at = whole + chain * t_.lanes; at < k)
    step(w_.i64(at), k - at < t_.lanes ? w_.i64(k - at) : Expr{});
}

void RowsKernel::multiply_panel(int chain) {
  const auto multiply = [&](Expr k, Expr vector, int64_t first, int64_t last, const std::vector<BufferId>* to) {
    for (int64_t position = first; position < last; position += t_.lanes) {
      if (position / t_.lanes % t_.chains != chain) continue;
      std::vector<Expr> right;
      for (int j = 0; j < t_.width; ++j)
        right.push_back(
            b_.load(panel_, {Scalar::f32, t_.lanes}, place_in_panel(vector + position / t_.lanes, j), t_.lanes * 4));
      products(to, chain, k + position, right, last - position < t_.lanes ? w_.i64(last - position) : Expr{});
    }
  };
  each_run([&](Expr k, int64_t count, Expr vector) {
    if (!form_ || whole_rows_) return multiply(k, vector, 0, count, nullptr);
    const int64_t group = std::gcd(form_->group, count);
    for (int64_t position = 0; position < count; position += group) {
      for (const BufferId s : partial_) b_.store(s, w_.zero(t_.lanes), w_.i64(0), 4);
      multiply(k, vector, position, position + group, &partial_);
      for (int j = 0; j < t_.width; ++j) {
        const Expr at = place_in_panel(vector + position / t_.lanes, j) / t_.lanes;
        const Expr scale = b_.splat(b_.load(panel_scales_, {Scalar::f32, 1}, at, 4), t_.lanes);
        for (int i = 0; i < t_.height; ++i) add_scaled(i, j, scale);
      }
    }
  });
}

void RowsKernel::sum_packed(const std::vector<Expr>& rows) {
  const DotLoad& load = p_.loads[1];
  const int64_t block = load.format->block, unit = unpack_unit(*load.format, t_.lanes);
  std::vector<std::unique_ptr<Unpack>> cursors;
  std::vector<Expr> first;
  for (Expr row : rows) {
    cursors.push_back(cursor_of_b());
    cursors.back()->use(m_);
    cursors.back()->enter_tensor();
    cursors.back()->enter_row(row / load.columns);
    first.push_back(row / block);
  }
  row_scales_.clear();
  auto run = [&](Expr k, int64_t count) {
    const Expr ahead = k / block;
    for (size_t j = 0; j < rows.size(); ++j) {
      ask_ahead_of_blocks(first[j], ahead, count / block);
      cursors[j]->enter_block(first[j] + ahead, count / block);
    }
    if (!form_ || whole_rows_) return sum_run(cursors, k, 0, count, form_ ? &form_->value : nullptr, nullptr);
    const int64_t group = std::gcd(form_->group, count);
    for (int64_t position = 0; position < count; position += group) {
      for (const BufferId s : partial_) b_.store(s, w_.zero(t_.lanes), w_.i64(0), 4);
      sum_run(cursors, k, position, group, &form_->value, &partial_);
      for (int i = 0; i < t_.height; ++i)
        for (int j = 0; j < t_.width; ++j) {
          const Expr scale = b_.splat(cursors[j]->expression(*form_->scale, position, 1, false), t_.lanes);
          add_scaled(i, j, scale);
        }
    }
  };
  const int64_t k = p_.k.extent, whole = k / unit * unit;
  along_k(0, whole, unit, [&](Expr at) { run(at, unit); });
  along_k(whole, k, block, [&](Expr at) { run(at, block); });
  for (size_t j = 0; form_ && whole_rows_ && j < rows.size(); ++j) {
    cursors[j]->enter_block(first[j], 1);
    row_scales_.push_back(cursors[j]->expression(*form_->scale, 0, 1, false));
  }
}

std::vector<Expr> RowsKernel::rows_from(Expr n) {
  std::vector<Expr> rows;
  for (int j = 0; j < t_.width; ++j) rows.push_back(row_of_b(n + j));
  return rows;
}

void RowsKernel::write_group(Expr n) {
  for (const auto* sums : {&sums_, &shift_sums_})
    for (const BufferId s : *sums) b_.store(s, w_.zero(t_.lanes), w_.i64(0), 4);
  const bool is_packed = p_.loads[1].kind == DotLoad::Kind::packed;
  if (t_.fills_panel())
    for (int chain = 0; chain < t_.chains; ++chain) is_packed ? multiply_panel(chain) : multiply_memory(chain);
  else if (is_packed)
    sum_packed(rows_from(n));
  else if (t_.row)
    sum_codes(rows_from(n));
  else
    sum_memory(rows_from(n));
  const auto scaled = [&](Expr total, int j) { return row_scales_.empty() ? total : total * row_scales_[j]; };
  finish(n, [&](int i, int j) { return sum(i, j); }, scaled);
}

}  // namespace

Step write_rows_kernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const machine::Machine& m) {
  return RowsKernel(g, p, t, m).write(describe_shape(p) + " " + describe(t));
}

}  // namespace lumen::synth
