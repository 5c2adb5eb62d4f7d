// Rows of the weight in integers times quantized activations, one unit of their common order at a time: for each vector
// of codes one integer dot, and a conversion to f32 where the scales change. A unit's scales are vectors, one lane per
// group.
#include "kernel/synth/gemm/cpu/dot_integer.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/cpu/product_writer.h"
#include "kernel/synth/gemm/operand/coded_rows.h"
#include "kernel/synth/gemm/operand/operand_step.h"

namespace lumen::synth {
namespace {

// Consecutive vectors whose lanes lie in the same groups: their products are added before they are scaled.
struct Chain {
  std::vector<size_t> vectors;
  std::vector<int> group;  // by lane of the sums
};

int64_t most_code(const DotProblem& p) {
  const auto coded = coded_rows(p);
  return coded ? coded->most() : 127;
}

class IntegerKernel : ProductWriter {
 public:
  IntegerKernel(const graph::Graph& g, const DotProblem& p, const RowsPlan& t, const IntegerDot& d,
                const machine::Machine& m, const OperandLayout& layout, const std::optional<TradedOrder>& traded,
                const OperandScratch& s)
      : ProductWriter(g, p, t, m),
        t_(t),
        m_(m),
        d_(d),
        layout_(layout),
        traded_(traded),
        x_(declare_params(w_, layout, s, false)),
        most_x_(most_code(p)),
        corrects_(d_.bias != 0 || d_.form.offset) {}

  Step write(std::string plan) {
    const auto declare = [&] {
      for (int i = 0; i < t_.height * t_.width; ++i) sums_.push_back(b_.alloc(d_.row.lanes * 4));
      if (t_.fills_panel()) declare_panel();
    };
    const auto enter = [&](Expr n) {
      if (t_.fills_panel()) fill_panel(n);
    };
    return ProductWriter::write(std::move(plan), declare, enter, [&](Expr n) { write_group(n); });
  }

 private:
  // A unit of the row order, or the rest: where it begins among blocks of a row of b, codes and groups.
  struct Unit {
    const LaneOrder& order;
    bool is_rest = false;
    Expr blocks, code, group;
  };
  // The factors of a unit's groups, a lane for each.
  struct Factors {
    Expr scale, correction;
  };
  void each_unit(const std::function<void(const Unit&)>& body);
  void enter_columns(Expr n);
  void enter_unit(const Unit& u, int j);
  Factors factors(int j, int64_t elements);
  std::vector<Expr> all_codes(const Unit& u, int j);
  // Byte of vector v of column j of the panel.
  Expr place_of_codes(const Unit& u, int64_t v, int j) const {
    const int64_t bytes = scalar_bytes(d_.row.a), vector = v * t_.width + j;
    return u.code * (t_.width * bytes) + vector * layout_.lanes * bytes;
  }
  int groups_of(const Unit& u) const { return (u.order.elements + layout_.sum_group - 1) / layout_.sum_group; }
  void declare_panel();
  void fill_panel(Expr n);
  void write_group(Expr n);
  void write_unit(const Unit& u);
  void add_joined(const Unit& u, const std::vector<Expr>& scales);
  void multiply_panel(const Unit& u);
  void add_corrections(int i, int j, Expr c, Expr x);
  std::vector<Chain> chains_of(const LaneOrder& order) const;
  // A sum of dots of one row of a with one of b, while it grows.
  struct Dots {
    Expr total;
    Expr products;  // 16-bit products that are not in the total yet, and how many
    int64_t open = 0;
  };
  bool joins_sums() const { return t_.height == 1 && !t_.fills_panel(); }
  void add(Dots& dots, Expr q, Expr x);
  Expr total_of(Dots& dots);
  void widen(Dots& dots);
  Expr sum(int i, int j) { return b_.load(sums_[at(i, j)], {Scalar::f32, d_.row.lanes}, w_.i64(0), 4); }
  size_t at(int i, int j) const { return i * t_.width + j; }
  const RowsPlan& t_;
  const machine::Machine& m_;
  const IntegerDot& d_;
  const OperandLayout& layout_;
  const std::optional<TradedOrder>& traded_;  // of a unit
  const OperandParams x_;
  const int64_t most_x_;  // of |codes|
  const bool corrects_;
  std::vector<BufferId> sums_;
  BufferId panel_codes_ = -1, panel_scales_ = -1, panel_corrections_ = -1;
  std::vector<std::unique_ptr<Unpack>> cursors_;
  std::vector<Expr> first_blocks_, x_rows_;
};

std::vector<Chain> IntegerKernel::chains_of(const LaneOrder& order) const {
  std::vector<Chain> chains;
  for (size_t v = 0; v < order.vectors.size(); ++v) {
    std::vector<int> group;
    for (int lane = 0; lane < d_.row.lanes; ++lane) {
      const int64_t element = order.vectors[v][lane * d_.row.k];
      group.push_back(element < 0 ? 0 : static_cast<int>(element / layout_.sum_group));
    }
    if (chains.empty() || chains.back().group != group) chains.push_back({{}, group});
    chains.back().vectors.push_back(v);
  }
  return chains;
}

// Adds the products of k neighbours to i32 lanes.
void IntegerKernel::add(Dots& dots, Expr q, Expr x) {
  const machine::DotRow& row = d_.row;
  const VType result{row.acc, row.lanes};
  if (row.accumulates && !dots.total.exists()) dots.total = b_.integer(0, result);
  const Expr right = row.b == Scalar::i8 ? x : cast(x, row.b);
  if (row.accumulates) {
    dots.total = b_.inst(row.row, result, {dots.total, q, right});
    return;
  }
  if (row.pairs.empty()) {
    const Expr products = b_.inst(row.row, result, {q, right});
    dots.total = !dots.total.exists() ? products : dots.total + products;
    return;
  }
  // 16-bit products are added as long as no sum can overflow.
  const loop::Function* first = m_.meaning(row.row);
  const VType half = first->body.value_types[first->result];
  const int64_t largest = std::max(std::abs(d_.form.q_max - d_.bias), std::abs(d_.form.q_min - d_.bias));
  const int64_t per_lane = int64_t{row.lanes} * row.k / half.lanes;
  const int64_t together = std::max<int64_t>(1, 32767 / std::max<int64_t>(1, per_lane * largest * most_x_));
  const Expr one = b_.inst(row.row, half, {q, right});
  dots.products = dots.open == 0 ? one : dots.products + one;
  if (++dots.open == together) widen(dots);
}

void IntegerKernel::widen(Dots& dots) {
  const machine::DotRow& row = d_.row;
  std::vector<Expr> operands{dots.products};
  if (row.pairs_ones) operands.push_back(b_.integer(1, b_.type(dots.products)));
  const Expr wide = b_.inst(row.pairs, {row.acc, row.lanes}, operands);
  dots.total = !dots.total.exists() ? wide : dots.total + wide;
  dots.open = 0;
}

Expr IntegerKernel::total_of(Dots& dots) {
  if (dots.open > 0) widen(dots);
  return dots.total;
}

// sums += c * x, one lane per group of the unit; further lanes of the sums are unchanged.
void IntegerKernel::add_corrections(int i, int j, Expr c, Expr x) {
  const int groups = b_.type(c).lanes, lanes = d_.row.lanes;
  for (int first = 0; first < groups; first += lanes) {
    std::vector<int> mask(lanes, -1);
    std::iota(mask.begin(), mask.begin() + std::min(lanes, groups - first), first);
    const auto part = [&](Expr v) { return groups == 1 ? b_.insert(w_.zero(lanes), v, 0) : b_.shuffle({v}, mask); };
    b_.store(sums_[at(i, j)], fma(part(c), part(x), sum(i, j)), w_.i64(0), 4);
  }
}

void IntegerKernel::enter_unit(const Unit& u, int j) {
  const int64_t block = p_.loads[1].format->block;
  ask_ahead_of_blocks(first_blocks_[j], u.blocks, u.order.elements / block);
  cursors_[j]->enter_block(first_blocks_[j] + u.blocks, u.order.elements / block);
}

IntegerKernel::Factors IntegerKernel::factors(int j, int64_t elements) {
  Unpack& cursor = *cursors_[j];
  Factors f{lanes_by_group(b_, cursor, d_.form.scale, layout_.sum_group, elements), {}};
  if (!corrects_) return f;
  f.correction = d_.form.offset ? lanes_by_group(b_, cursor, *d_.form.offset, layout_.sum_group, elements) : Expr{};
  if (d_.bias == 0) return f;
  const Expr bias = b_.real(d_.bias, b_.type(f.scale));
  f.correction = !f.correction.exists() ? f.scale * bias : fma(f.scale, bias, f.correction);
  return f;
}

// A unit's vectors of codes, after they have traded words.
std::vector<Expr> IntegerKernel::all_codes(const Unit& u, int j) {
  std::vector<Expr> codes, out;
  const bool trades = traded_ && !u.is_rest;
  for (const std::vector<int64_t>& elements : trades ? traded_->before.vectors : u.order.vectors)
    codes.push_back(integer_codes(b_, *cursors_[j], d_, m_, elements));
  if (!trades) return codes;
  for (const Trade& t : traded_->trades) {
    const std::vector<Expr> two{codes[t.first], codes[t.second]};
    for (const bool second : {false, true}) {
      std::vector<int> numbers;
      for (const int word : lanes_after(t, d_.row.lanes, second))
        for (int i = 0; i < d_.row.k; ++i) numbers.push_back(word * d_.row.k + i);
      codes[second ? t.second : t.first] = b_.shuffle(two, numbers);
    }
  }
  for (const size_t v : traded_->from) out.push_back(codes[v]);
  return out;
}

void IntegerKernel::declare_panel() {
  const int64_t codes = t_.width * layout_.codes() * scalar_bytes(d_.row.a);
  const int64_t groups = t_.width * (layout_.groups() + d_.row.lanes) * 4;
  panel_codes_ = b_.alloc(codes);
  panel_scales_ = b_.alloc(groups);
  if (corrects_) panel_corrections_ = b_.alloc(groups);
}

void IntegerKernel::fill_panel(Expr n) {
  enter_columns(n);
  each_unit([&](const Unit& u) {
    const int64_t bytes = int64_t{layout_.lanes} * scalar_bytes(d_.row.a);
    for (int j = 0; j < t_.width; ++j) {
      enter_unit(u, j);
      const Factors f = factors(j, u.order.elements);
      const Expr place = u.group * (t_.width * 4) + int64_t{j} * groups_of(u) * 4;
      b_.store(panel_scales_, f.scale, place, 4);
      if (corrects_) b_.store(panel_corrections_, f.correction, place, 4);
      const std::vector<Expr> codes = all_codes(u, j);
      for (size_t v = 0; v < codes.size(); ++v) b_.store(panel_codes_, codes[v], place_of_codes(u, v, j), bytes);
    }
  });
}

// The products of a unit of the panel, vector by vector of codes.
void IntegerKernel::multiply_panel(const Unit& u) {
  const int groups = groups_of(u), width = t_.width, lanes = layout_.lanes;
  const VType numbers{Scalar::f32, groups};
  std::vector<Expr> x_scales, scales;
  for (int i = 0; i < t_.height; ++i) {
    const Expr place = (x_rows_[i] * layout_.groups() + u.group) * 4;
    x_scales.push_back(b_.load(x_.scales, numbers, place, 4));
    const Expr x_sum = corrects_ ? b_.load(x_.sums, numbers, place, 4) : Expr{};
    for (int j = 0; j < width; ++j) {
      const Expr at = u.group * (width * 4) + int64_t{j} * groups * 4;
      if (i == 0) scales.push_back(b_.load(panel_scales_, numbers, at, 4));
      if (corrects_) add_corrections(i, j, b_.load(panel_corrections_, numbers, at, 4), x_sum);
    }
  }
  for (const Chain& chain : chains_of(u.order)) {
    std::vector<Dots> dots(size_t{1} * t_.height * width);
    for (const size_t v : chain.vectors) {
      std::vector<Expr> q;
      for (int j = 0; j < width; ++j)
        q.push_back(b_.load(panel_codes_, {d_.row.a, lanes}, place_of_codes(u, v, j), lanes * scalar_bytes(d_.row.a)));
      for (int i = 0; i < t_.height; ++i) {
        const Expr from = x_rows_[i] * layout_.codes() + u.code + static_cast<int64_t>(v) * lanes;
        const Expr x = b_.load(x_.codes, {Scalar::i8, lanes}, from);
        for (int j = 0; j < width; ++j) add(dots[at(i, j)], q[j], x);
      }
    }
    const auto by_lane = [&](Expr s) { return groups == 1 ? b_.splat(s, d_.row.lanes) : b_.shuffle({s}, chain.group); };
    std::vector<Expr> here;
    for (const Expr s : scales) here.push_back(by_lane(s));
    for (int i = 0; i < t_.height; ++i) {
      const Expr x_scale = by_lane(x_scales[i]);
      for (int j = 0; j < width; ++j)
        b_.store(sums_[at(i, j)], fma(cast(total_of(dots[at(i, j)]), Scalar::f32), here[j] * x_scale, sum(i, j)),
                 w_.i64(0), 4);
    }
  }
}

// A unit of one row: not the codes trade words but the sums of their products, which are whole.
void IntegerKernel::add_joined(const Unit& u, const std::vector<Expr>& scales) {
  const int lanes = layout_.lanes;
  const auto join = [&](Expr first, Expr second, const Trade& t) {
    const std::vector<Expr> two{first, second};
    return b_.shuffle(two, lanes_after(t, d_.row.lanes, false)) + b_.shuffle(two, lanes_after(t, d_.row.lanes, true));
  };
  for (int j = 0; j < t_.width; ++j) {
    std::vector<Expr> totals;
    for (const std::vector<size_t>& chain : traded_->chains) {
      Dots dots;
      for (const size_t v : chain) {
        const Expr q = integer_codes(b_, *cursors_[j], d_, m_, traded_->before.vectors[v]);
        const Expr from = x_rows_[0] * layout_.codes() + u.code + static_cast<int64_t>(v) * lanes;
        add(dots, q, b_.load(x_.codes, {Scalar::i8, lanes}, from));
      }
      totals.push_back(total_of(dots));
    }
    std::vector<size_t> vectors;  // of the chains that are left, and 0
    for (const std::vector<size_t>& chain : traded_->chains) vectors.push_back(chain.size());
    for (const Trade& t : traded_->joins) {
      totals[t.first] = join(totals[t.first], totals[t.second], t);
      vectors[t.first] += vectors[t.second];
      vectors[t.second] = 0;
    }
    size_t next = 0;
    for (const Chain& chain : chains_of(traded_->order)) {
      Expr total;
      for (size_t count = 0; count < chain.vectors.size(); ++next) {
        if (vectors[next] == 0) continue;
        total = !total.exists() ? totals[next] : total + totals[next];
        count += vectors[next];
      }
      const Expr scaled =
          b_.type(scales[j]).lanes == 1 ? b_.splat(scales[j], d_.row.lanes) : b_.shuffle({scales[j]}, chain.group);
      b_.store(sums_[at(0, j)], fma(cast(total, Scalar::f32), scaled, sum(0, j)), w_.i64(0), 4);
    }
  }
}

void IntegerKernel::write_unit(const Unit& u) {
  const LaneOrder& order = u.order;
  const int groups = groups_of(u);
  const int width = t_.width;
  const VType numbers{Scalar::f32, groups};
  std::vector<Factors> factors_of;
  for (int j = 0; j < width; ++j) {
    enter_unit(u, j);
    factors_of.push_back(factors(j, order.elements));
  }
  std::vector<Expr> scales;  // scales of the products, by i and j
  for (int i = 0; i < t_.height; ++i) {
    const Expr row = x_rows_[i];
    const Expr place = (row * layout_.groups() + u.group) * 4;
    const Expr x_scale = b_.load(x_.scales, numbers, place, 4);
    const Expr x_sum = corrects_ ? b_.load(x_.sums, numbers, place, 4) : Expr{};
    for (int j = 0; j < width; ++j) {
      scales.push_back(factors_of[j].scale * x_scale);
      if (corrects_) add_corrections(i, j, factors_of[j].correction, x_sum);
    }
  }
  if (traded_ && !u.is_rest && joins_sums()) return add_joined(u, scales);
  std::vector<std::vector<Expr>> traded(width);
  for (int j = 0; traded_ && j < width; ++j) traded[j] = all_codes(u, j);
  const int lanes = layout_.lanes;
  for (const Chain& chain : chains_of(order)) {
    std::vector<std::vector<Expr>> q(width), x(t_.height);
    for (int j = 0; j < width; ++j)
      for (const size_t v : chain.vectors)
        q[j].push_back(traded_ ? traded[j][v] : integer_codes(b_, *cursors_[j], d_, m_, order.vectors[v]));
    for (int i = 0; i < t_.height; ++i)
      for (const size_t v : chain.vectors) {
        const Expr row = x_rows_[i] * layout_.codes();
        const Expr from = row + u.code + static_cast<int64_t>(v) * lanes;
        x[i].push_back(b_.load(x_.codes, {Scalar::i8, lanes}, from));
      }
    for (int i = 0; i < t_.height; ++i)
      for (int j = 0; j < width; ++j) {
        Dots dots;
        for (size_t v = 0; v < q[j].size(); ++v) add(dots, q[j][v], x[i][v]);
        const Expr dot = cast(total_of(dots), Scalar::f32);
        const Expr all = scales[at(i, j)];
        const Expr scaled = groups == 1 ? b_.splat(all, d_.row.lanes) : b_.shuffle({all}, chain.group);
        b_.store(sums_[at(i, j)], fma(dot, scaled, sum(i, j)), w_.i64(0), 4);
      }
  }
}

void IntegerKernel::enter_columns(Expr n) {
  const DotLoad& load = p_.loads[1];
  cursors_.clear();
  first_blocks_.clear();
  for (int j = 0; j < t_.width; ++j) {
    const Expr element = row_of_b(n + j);
    cursors_.push_back(cursor_of_b());
    cursors_.back()->enter_tensor();
    cursors_.back()->enter_row(element / load.columns);
    first_blocks_.push_back(element / load.format->block);
  }
}

void IntegerKernel::each_unit(const std::function<void(const Unit&)>& body) {
  const int64_t block = p_.loads[1].format->block;
  const RowOrder& order = layout_.order;
  b_.loop(LoopKind::serial, by_waves() ? wave_.lane : w_.i64(0), w_.i64(order.units), by_waves() ? m_.wave : 1,
          [&](Expr unit) {
            const Expr group = unit * layout_.unit_groups(), code = unit * layout_.unit_codes();
            body({order.unit, false, unit * (order.unit.elements / block), code, group});
          });
  const auto rest = [&] {
    body({order.rest, true, w_.i64(order.units * order.unit.elements / block),
          w_.i64(order.units * layout_.unit_codes()), w_.i64(order.units * layout_.unit_groups())});
  };
  if (order.rest.elements > 0 && by_waves())
    b_.branch(wave_.lane == 0, rest);
  else if (order.rest.elements > 0)
    rest();
}

void IntegerKernel::write_group(Expr n) {
  for (const BufferId s : sums_) b_.store(s, w_.zero(d_.row.lanes), w_.i64(0), 4);
  if (!t_.fills_panel()) enter_columns(n);
  x_rows_.clear();
  for (int i = 0; i < t_.height; ++i) x_rows_.push_back(w_.laid_row(outer_, p_.m.extent) + i);
  each_unit([&](const Unit& u) { t_.fills_panel() ? multiply_panel(u) : write_unit(u); });
  finish(n, [&](int i, int j) { return sum(i, j); });
}

// Groups of a unit: at most as many as a vector has lanes, and few enough that every lane of a wave has a unit.
int64_t most_groups(const DotProblem& p, const IntegerDot& d, const machine::Machine& m) {
  return std::clamp<int64_t>(p.k.extent / (d.fine * m.wave), 1, d.row.lanes);
}

}  // namespace

bool keeps_codes(const DotProblem& p) {
  return coded_rows(p) && rows_possible(with_plain_rows(p));
}

bool integer_possible(const DotProblem& p) {
  return p.loads[1].kind == DotLoad::Kind::packed && (rows_possible(p) || keeps_codes(p));
}

void write_integer_kernels(const graph::Graph& g, const DotProblem& p, const RowsPlan& rows, const IntegerDot& d,
                           const machine::Machine& m, bool invariant, Synthesis& out) {
  // Codes of a are small: several rows of b at once would save a processor nothing. Lanes of a wave are a unit apart,
  // and reuse what they read of a for several rows.
  const RowsPlan t = m.wave > 1 ? rows : rows.single();
  OperandLayout layout;
  layout.rows = p.rows_of_a();
  layout.columns = p.k.extent;
  layout.scale_group = kActivationGroup;
  layout.sum_group = d.fine;
  layout.scales_by_sum = layout.sums = true;
  layout.lanes = d.step();
  layout.order = choose_order(*p.loads[1].format, p.k.extent, layout.lanes, d.row.k, d.fine, most_groups(p, d, m));
  std::optional<TradedOrder> traded;
  if (invariant && m.wave == 1) {
    traded = with_groups_apart(layout.order.unit, d.row.k, layout.sum_group);
    if (t.height > 1 || t.fills_panel()) layout.order.unit = traded->order;
  }
  const OperandScratch s = write_operand_step(g, p, layout, m, out);
  RowsPlan said = t;
  said.row = CodesDot{d.row};
  out.steps.push_back(IntegerKernel(g, p, t, d, m, layout, traded, s).write(describe_shape(p) + " " + describe(said)));
}

}  // namespace lumen::synth
