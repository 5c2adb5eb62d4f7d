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
                const machine::Machine& m, const OperandLayout& layout, const OperandScratch& s)
      : ProductWriter(g, p, t, m),
        t_(t),
        m_(m),
        d_(d),
        layout_(layout),
        x_(declare_params(w_, layout, s, false)),
        most_x_(most_code(p)),
        corrects_(d_.bias != 0 || d_.form.offset) {}

  Step write(std::string plan) {
    const auto declare = [&] {
      for (int i = 0; i < t_.height * t_.width; ++i) sums_.push_back(b_.alloc(d_.row.lanes * 4));
    };
    return ProductWriter::write(std::move(plan), declare, [&](Expr n) { write_group(n); });
  }

 private:
  void write_group(Expr n);
  void write_unit(const LaneOrder& order, Expr blocks, Expr code, Expr group);
  void add_corrections(int i, int j, Expr c, Expr x);
  std::vector<Chain> chains_of(const LaneOrder& order) const;
  Expr integer_dots(const std::vector<Expr>& q, const std::vector<Expr>& x);
  Expr sum(int i, int j) { return b_.load(sums_[at(i, j)], {Scalar::f32, d_.row.lanes}, w_.i64(0), 4); }
  size_t at(int i, int j) const { return i * t_.width + j; }
  const RowsPlan& t_;
  const machine::Machine& m_;
  const IntegerDot& d_;
  const OperandLayout& layout_;
  const OperandParams x_;
  const int64_t most_x_;  // of |codes|
  const bool corrects_;
  std::vector<BufferId> sums_;
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

// i32 lanes: products of k neighbours, added over all vectors.
Expr IntegerKernel::integer_dots(const std::vector<Expr>& q, const std::vector<Expr>& x) {
  const machine::DotRow& row = d_.row;
  const VType result{row.acc, row.lanes};
  const auto right = [&](size_t v) { return row.b == Scalar::i8 ? x[v] : cast(x[v], row.b); };
  Expr total;
  if (row.accumulates) {
    total = b_.integer(0, result);
    for (size_t v = 0; v < q.size(); ++v) total = b_.inst(row.row, result, {total, q[v], right(v)});
    return total;
  }
  if (row.pairs.empty()) {
    for (size_t v = 0; v < q.size(); ++v) {
      const Expr products = b_.inst(row.row, result, {q[v], right(v)});
      total = !total.exists() ? products : total + products;
    }
    return total;
  }
  // 16-bit products are added as long as no sum can overflow.
  const loop::Function* first = m_.meaning(row.row);
  const VType half = first->body.value_types[first->result];
  const int64_t largest = std::max(std::abs(d_.form.q_max - d_.bias), std::abs(d_.form.q_min - d_.bias));
  const int64_t per_lane = int64_t{row.lanes} * row.k / half.lanes;
  const int64_t together = std::max<int64_t>(1, 32767 / std::max<int64_t>(1, per_lane * largest * most_x_));
  for (size_t v = 0; v < q.size();) {
    Expr products;
    for (int64_t i = 0; i < together && v < q.size(); ++i, ++v) {
      const Expr one = b_.inst(row.row, half, {q[v], right(v)});
      products = !products.exists() ? one : products + one;
    }
    const Expr wide = row.pairs_ones ? b_.inst(row.pairs, result, {products, b_.integer(1, half)})
                                     : b_.inst(row.pairs, result, {products});
    total = !total.exists() ? wide : total + wide;
  }
  return total;
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

void IntegerKernel::write_unit(const LaneOrder& order, Expr blocks, Expr code, Expr group) {
  const int64_t block = p_.loads[1].format->block;
  const int groups = (order.elements + layout_.sum_group - 1) / layout_.sum_group;
  const int width = t_.width;
  const VType numbers{Scalar::f32, groups};
  std::vector<Expr> scale, correction;
  for (int j = 0; j < width; ++j) {
    Unpack& cursor = *cursors_[j];
    ask_ahead_of_blocks(first_blocks_[j], blocks, order.elements / block);
    cursor.enter_block(first_blocks_[j] + blocks, order.elements / block);
    scale.push_back(lanes_by_group(b_, cursor, d_.form.scale, layout_.sum_group, order.elements));
    if (!corrects_) continue;
    Expr c = d_.form.offset ? lanes_by_group(b_, cursor, *d_.form.offset, layout_.sum_group, order.elements) : Expr{};
    if (d_.bias != 0) {
      const Expr bias = b_.real(d_.bias, numbers);
      c = !c.exists() ? scale.back() * bias : fma(scale.back(), bias, c);
    }
    correction.push_back(c);
  }
  std::vector<Expr> scales;  // scales of the products, by i and j
  for (int i = 0; i < t_.height; ++i) {
    const Expr row = x_rows_[i];
    const Expr place = (row * layout_.groups() + group) * 4;
    const Expr x_scale = b_.load(x_.scales, numbers, place, 4);
    const Expr x_sum = corrects_ ? b_.load(x_.sums, numbers, place, 4) : Expr{};
    for (int j = 0; j < width; ++j) {
      scales.push_back(scale[j] * x_scale);
      if (corrects_) add_corrections(i, j, correction[j], x_sum);
    }
  }
  const int lanes = layout_.lanes;
  for (const Chain& chain : chains_of(order)) {
    std::vector<std::vector<Expr>> q(width), x(t_.height);
    for (int j = 0; j < width; ++j)
      for (const size_t v : chain.vectors) q[j].push_back(integer_codes(b_, *cursors_[j], d_, m_, order.vectors[v]));
    for (int i = 0; i < t_.height; ++i)
      for (const size_t v : chain.vectors) {
        const Expr row = x_rows_[i] * layout_.codes();
        const Expr from = row + code + static_cast<int64_t>(v) * lanes;
        x[i].push_back(b_.load(x_.codes, {Scalar::i8, lanes}, from));
      }
    for (int i = 0; i < t_.height; ++i)
      for (int j = 0; j < width; ++j) {
        const Expr dot = cast(integer_dots(q[j], x[i]), Scalar::f32);
        const Expr all = scales[at(i, j)];
        const Expr scaled = groups == 1 ? b_.splat(all, d_.row.lanes) : b_.shuffle({all}, chain.group);
        b_.store(sums_[at(i, j)], fma(dot, scaled, sum(i, j)), w_.i64(0), 4);
      }
  }
}

void IntegerKernel::write_group(Expr n) {
  const DotLoad& load = p_.loads[1];
  const int64_t block = load.format->block;
  for (const BufferId s : sums_) b_.store(s, w_.zero(d_.row.lanes), w_.i64(0), 4);
  cursors_.clear();
  first_blocks_.clear();
  for (int j = 0; j < t_.width; ++j) {
    const Expr element = row_of_b(n + j);
    cursors_.push_back(cursor_of_b());
    cursors_.back()->enter_tensor();
    cursors_.back()->enter_row(element / load.columns);
    first_blocks_.push_back(element / block);
  }
  x_rows_.clear();
  for (int i = 0; i < t_.height; ++i) x_rows_.push_back(w_.laid_row(outer_, p_.m.extent) + i);

  const RowOrder& order = layout_.order;
  b_.loop(LoopKind::serial, by_waves() ? wave_.lane : w_.i64(0), w_.i64(order.units), by_waves() ? m_.wave : 1,
          [&](Expr unit) {
            write_unit(order.unit, unit * (order.unit.elements / block), unit * layout_.unit_codes(),
                       unit * layout_.unit_groups());
          });
  const auto rest = [&] {
    write_unit(order.rest, w_.i64(order.units * order.unit.elements / block),
               w_.i64(order.units * layout_.unit_codes()), w_.i64(order.units * layout_.unit_groups()));
  };
  if (order.rest.elements > 0 && by_waves())
    b_.branch(wave_.lane == 0, rest);
  else if (order.rest.elements > 0)
    rest();
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
                           const machine::Machine& m, Synthesis& out) {
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
  const OperandScratch s = write_operand_step(g, p, layout, m, out);
  out.steps.push_back(IntegerKernel(g, p, t, d, m, layout, s)
                          .write(fmt::format("{} rows {}x{} task {} {}", describe_shape(p), t.height, t.width,
                                             t.n_task * t.width, d.row.row)));
}

}  // namespace lumen::synth
