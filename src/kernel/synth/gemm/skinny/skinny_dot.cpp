// The nest of a block: stages of K of its rows of b, copied as they lie in memory, `buffers` - 1 of them in flight.
// Every lane sums its units of its rows; the lanes of a row are reduced at the end, in a fixed order.
#include "kernel/synth/gemm/skinny/skinny_dot.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "base/round_up.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/skinny_activations.h"
#include "kernel/synth/gemm/skinny/weight_copies.h"
#include "kernel/synth/step/software_pipeline.h"
#include "kernel/synth/unpack/bits_as.h"

namespace lumen::synth {
namespace {

constexpr int kQuad = 4;
constexpr int64_t kEarlyBytes = 48 << 10;  // about 1.5 us of a multiprocessor's share of the memory
constexpr int kPartsOfSum = 8;             // dots of one dependent chain

class SkinnyDotKernel {
 public:
  SkinnyDotKernel(const graph::Graph& g, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m)
      : p_(p),
        t_(t),
        m_(m),
        height_(static_cast<int>(p.m.extent)),
        w_(g, p, "dot"),
        b_(w_.b),
        pipeline_(b_, {.lanes = t.lanes(m.wave), .buffers = t.buffers, .by_wave = true}) {}

  Step write(std::string plan) {
    tiles_ = ceil_div(p_.n.extent, t_.wave_rows());
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(p_.outer_extent() * blocks_of_outer()), 1,
            [&](Expr block) { write_block(block); });
    return w_.step(std::move(plan));
  }

 private:
  int64_t blocks_of_outer() const {
    return std::min(ceil_div(tiles_, t_.waves), std::max<int64_t>(1, t_.blocks / p_.outer_extent()));
  }
  void lanes(const std::function<void(Expr)>& body) { pipeline_.lanes(body); }
  void multiply(Expr lane, Expr stage, Expr number);
  void sum_integers(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j);
  void sum_values(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j);
  void sum_pairs(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j);
  using AddRun = std::function<void(std::vector<Expr>&, Expr, const std::vector<int64_t>&)>;
  std::vector<Expr> sum_codes(Unpack& cursor, int64_t group, const AddRun& add);
  std::vector<Expr> sum_by_exponent(Unpack& cursor, int64_t group, const AddRun& add);
  std::vector<Expr> words_of(Unpack& cursor, const std::vector<int64_t>& vector);  // codes of four elements each
  // By row: products of values over a group, and sums of activations for its offset.
  struct GroupSums {
    std::vector<Expr> products, xs;
  };
  GroupSums begin_group(int j);
  void add(GroupSums& sums, int i, Expr values, Expr x);
  void finish_group(Unpack& cursor, int64_t first, const GroupSums& sums, int j);
  void write_block(Expr block);
  void write_sums();
  // Lanes of a sum: one of integers, two of pairs, else a quad.
  int wide() const { return t_.integers ? 1 : t_.looks_up_pairs() ? 2 : kQuad; }
  VType codes_of_word() const { return {t_.integers->row.a, kQuad}; }
  BufferId sum_at(int i, int j) const { return sums_[i * t_.width + j]; }
  Expr sum(int i, int j) { return b_.load(sum_at(i, j), {Scalar::f32, wide()}, w_.i64(0), 4); }
  void set_sum(int i, int j, Expr v) { b_.store(sum_at(i, j), v, w_.i64(0), 4); }
  Expr row_of() { return b_.lane_id() / t_.columns * t_.width; }  // the first row of a lane, within its wave

  const DotProblem& p_;
  const SkinnyDotPlan& t_;
  const machine::Machine& m_;
  const int height_;
  DotWriter w_;
  Builder& b_;
  SoftwarePipeline pipeline_;
  int64_t tiles_ = 1;
  std::unique_ptr<WeightCopies> copies_;
  std::unique_ptr<PairTable> pairs_;
  std::unique_ptr<StreamWords> words_;
  std::unique_ptr<SkinnyActivations> x_;
  std::vector<BufferId> sums_;
  Expr n0_;
};

// For every group of a unit: the sum of products of codes, in integers, then its scales.
void SkinnyDotKernel::sum_integers(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j) {
  const IntegerDot& d = *t_.integers;
  const std::string dot = fmt::format("dot4.{}i8.i32", scalar_name(d.row.a));
  const VType whole{Scalar::i32, 1};
  const int64_t groups = t_.unit / d.fine;
  const Expr scales = lanes_by_group(b_, cursor, d.form.scale, d.fine, t_.unit);
  const Expr offsets = d.form.offset ? lanes_by_group(b_, cursor, *d.form.offset, d.fine, t_.unit) : Expr{};
  const auto finish = [&](int64_t g, const std::vector<Expr>& products) {
    const auto lane_of = [&](Expr v) { return b_.type(v).lanes == 1 ? v : b_.extract(v, g); };
    for (int i = 0; i < height_; ++i) {
      const SkinnyActivations::Numbers x = x_->numbers(at[i], g);
      const Expr dots = cast(products[i], Scalar::f32);
      Expr term;
      if (t_.bias() == 0)
        term = dots * x.scale;
      else
        term = fma(dots, x.scale, !offsets.exists() ? x.total : x.total * t_.bias());
      Expr all = fma(lane_of(scales), term, sum(i, j));
      if (offsets.exists()) all = fma(lane_of(offsets), x.total, all);
      set_sum(i, j, all);
    }
  };
  const auto add = [&](std::vector<Expr>& products, Expr q, const std::vector<int64_t>& run) {
    for (int i = 0; i < height_; ++i) {
      Expr& product = products[i];
      product = b_.inst(dot, whole, {product, q, x_->word(at[i], run)});
    }
  };
  if (t_.codes) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::vector<Expr> products = sum_codes(cursor, g, add);
      finish(g, products);
    }
    return;
  }
  std::vector<std::vector<Expr>> products(groups);
  for (auto& of : products) of.assign(height_, b_.integer(0, whole));
  std::vector<size_t> left(groups, d.fine / kQuad);
  for (const std::vector<int64_t>& vector : t_.order.vectors) {
    const std::vector<Expr> codes = words_of(cursor, vector);
    for (size_t first = 0; first < vector.size(); first += kQuad) {
      const int from = first;
      const std::vector<int64_t> run(vector.begin() + from, vector.begin() + from + kQuad);
      const size_t g = run[0] / d.fine;
      add(products[g], codes[first / kQuad], run);
      if (--left[g] == 0) finish(g, products[g]);
    }
  }
}

// A group's sums: separate ones for parts of different exponents, and for every few parts, so that dependent chains are
// short.
std::vector<Expr> SkinnyDotKernel::sum_codes(Unpack& cursor, int64_t group, const AddRun& add) {
  const VType whole{Scalar::i32, 1};
  if (!m_.async_copies) return sum_by_exponent(cursor, group, add);
  struct Sum {
    std::vector<Expr> products;
    int parts = 0;
  };
  std::map<int, std::vector<Sum>> sums;  // by exponent
  const std::vector<Expr> none(height_, b_.integer(0, whole));
  for (const StreamCodes::Run& run : t_.codes->runs) {
    if (run.elements[0] / t_.integers->fine != group) continue;
    for (const StreamWords::Term& term : words_->terms(cursor, run)) {
      std::vector<Sum>& alike = sums[term.exponent];
      if (alike.empty() || alike.back().parts == kPartsOfSum) alike.push_back({none, 0});
      add(alike.back().products, term.bytes, {run.elements.begin(), run.elements.end()});
      ++alike.back().parts;
    }
  }
  std::vector<Expr> all;
  for (const auto& [exponent, alike] : sums)
    for (const Sum& sum : alike)
      for (size_t i = 0; i < none.size(); ++i) {
        const int64_t counts = int64_t{1} << (exponent - t_.codes->least);
        const Expr product = sum.products[i] * counts;
        if (all.size() == i)
          all.push_back(product);
        else
          all[i] = all[i] + product;
      }
  return all;
}

// One sum, from the greatest exponent down, doubled from each to the next: fewest instructions, if other waves hide the
// latency of the chain.
std::vector<Expr> SkinnyDotKernel::sum_by_exponent(Unpack& cursor, int64_t group, const AddRun& add) {
  struct Part {
    Expr bytes;
    std::vector<int64_t> run;
  };
  std::map<int, std::vector<Part>, std::greater<>> parts;
  for (const StreamCodes::Run& run : t_.codes->runs) {
    if (run.elements[0] / t_.integers->fine != group) continue;
    for (const StreamWords::Term& term : words_->terms(cursor, run))
      parts[term.exponent].push_back({term.bytes, {run.elements.begin(), run.elements.end()}});
  }
  std::vector<Expr> all(height_, b_.integer(0, {Scalar::i32, 1}));
  int counts = parts.begin()->first;
  const auto count_by = [&](int exponent) {
    for (Expr& x : all) x = shifted(x, counts - exponent);
    counts = exponent;
  };
  for (const auto& [exponent, alike] : parts) {
    count_by(exponent);
    for (const Part& part : alike) add(all, part.bytes, part.run);
  }
  count_by(t_.codes->least);
  return all;
}

// Sums of values over runs of equal scale, then the scale.
void SkinnyDotKernel::sum_values(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j) {
  const ScaledForm& form = *t_.scaled;
  const int64_t run = std::gcd(form.group, t_.unit);
  for (int64_t first = 0; first < t_.unit; first += run) {
    const int step = std::gcd<int64_t>(run, 16);
    GroupSums sums = begin_group(j);
    for (int64_t position = first; position < first + run; position += step) {
      const Expr values = cursor.expression(form.value, position, step, true);
      for (int quad = 0; quad < step / kQuad; ++quad) {
        const int lane = quad * kQuad;
        const Expr four = step == kQuad ? values : b_.shuffle({values}, {lane, lane + 1, lane + 2, lane + 3});
        for (int i = 0; i < height_; ++i) add(sums, i, four, x_->quad(at[i], (position + lane) / kQuad));
      }
    }
    finish_group(cursor, first, sums, j);
  }
}

SkinnyDotKernel::GroupSums SkinnyDotKernel::begin_group(int j) {
  GroupSums out;
  for (int i = 0; i < height_; ++i) {
    out.products.push_back(t_.scaled->scale || t_.scaled->offset ? w_.zero(wide()) : sum(i, j));
    out.xs.push_back(w_.zero(wide()));
  }
  return out;
}

void SkinnyDotKernel::add(GroupSums& sums, int i, Expr values, Expr x) {
  sums.products[i] = fma(values, x, sums.products[i]);
  if (t_.scaled->offset) sums.xs[i] = sums.xs[i] + x;
}

// Sums += scale * sums of products + offset * sums of activations.
void SkinnyDotKernel::finish_group(Unpack& cursor, int64_t first, const GroupSums& sums, int j) {
  const ScaledForm& form = *t_.scaled;
  for (int i = 0; i < height_; ++i) {
    Expr all = sums.products[i];
    const auto times = [&](const RoutineExpr& e, Expr x, Expr to) {
      return fma(b_.splat(cursor.expression(e, first, 1, false), wide()), x, to);
    };
    if (form.scale)
      all = times(*form.scale, all, sum(i, j));
    else if (form.offset)
      all = all + sum(i, j);
    if (form.offset) all = times(*form.offset, sums.xs[i], all);
    set_sum(i, j, all);
  }
}

std::vector<Expr> SkinnyDotKernel::words_of(Unpack& cursor, const std::vector<int64_t>& vector) {
  std::vector<Expr> out;
  if (!t_.looks_up_pairs()) {
    const Expr codes = integer_codes(b_, cursor, *t_.integers, m_, vector);
    for (int first = 0; first < std::ssize(vector); first += kQuad)
      out.push_back(b_.shuffle({codes}, {first, first + 1, first + 2, first + 3}));
    return out;
  }
  const VType word{Scalar::u32, 1};
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < vector.size(); i += 2) {
    low.push_back(vector[i]);
    high.push_back(vector[i + 1]);
  }
  const std::vector<Expr> entries = pairs_->look_up(cursor, low, high, word);
  for (size_t i = 0; i < entries.size(); i += 2) {
    const Expr first = entries[i] & 0xffff;
    const Expr second = entries[i + 1] & 0xffff0000;
    out.push_back(bits_as(b_, first | second, codes_of_word()));
  }
  return out;
}

void SkinnyDotKernel::sum_pairs(Unpack& cursor, const std::vector<SkinnyActivations::Position>& at, int j) {
  const int64_t group = std::gcd(t_.scaled->group, t_.unit);
  for (int64_t first = 0; first < t_.unit; first += group) {
    std::vector<SkinnyDotPlan::Pair> pairs;
    for (const SkinnyDotPlan::Pair& p : t_.pair_order)
      if (p.low / group == first / group) pairs.push_back(p);
    GroupSums sums = begin_group(j);
    const size_t step = pairs.size() % 16 == 0 ? 16 : pairs.size() % 8 == 0 ? 8 : 4;
    for (size_t from = 0; from < pairs.size(); from += step) {
      std::vector<int64_t> low, high;
      for (size_t k = from; k < from + step; ++k) {
        low.push_back(pairs[k].low);
        high.push_back(pairs[k].high);
      }
      const std::vector<Expr> entries = pairs_->look_up(cursor, low, high, {Scalar::f16, 2});
      for (size_t k = 0; k < step; ++k) {
        const Expr values = cast(entries[k], Scalar::f32);
        for (int i = 0; i < height_; ++i) {
          const auto x_of = [&](int64_t e) { return b_.extract(x_->quad(at[i], e / kQuad), e % kQuad); };
          add(sums, i, values, b_.insert(b_.splat(x_of(low[k]), 2), x_of(high[k]), 1));
        }
      }
    }
    finish_group(cursor, first, sums, j);
  }
}

void SkinnyDotKernel::multiply(Expr lane, Expr stage, Expr number) {
  const DotLoad& load = p_.loads[1];
  const Expr column = b_.lane_id() % t_.columns, row = row_of();
  for (int64_t deep = 0; deep < t_.deep; ++deep) {
    const Expr group = stage * t_.deep + deep;
    const auto all = [&] {
      std::vector<SkinnyActivations::Position> at;
      for (int i = 0; i < height_; ++i) at.push_back(x_->place(i, group, column));
      for (int j = 0; j < t_.width; ++j) {
        Unpack cursor(b_, *load.format, w_.buffer(1), load.rows, load.columns);
        cursor.use(m_);
        if (load.format->row_bytes > 0 || load.format->tensor_bytes > 0) {
          const Expr n = copies_->clamped(row + j);
          cursor.enter_row((w_.base(1) + n * p_.n.strides[1]) / load.columns);
        }
        const Expr byte = number * t_.stage_bytes() + lane / m_.wave * (t_.wave_rows() * t_.pitch) +
                          ((row + j) * t_.pitch + (column * t_.unit_bytes + deep * t_.columns * t_.unit_bytes));
        cursor.enter_copied(w_.i64(0), t_.unit_blocks, copies_->buffer(), byte);
        if (t_.integers)
          sum_integers(cursor, at, j);
        else if (t_.looks_up_pairs())
          sum_pairs(cursor, at, j);
        else
          sum_values(cursor, at, j);
      }
    };
    w_.where(t_.units % t_.stage_units() == 0 ? Expr{} : group * t_.columns + column < t_.units, all);
  }
}

void SkinnyDotKernel::write_sums() {
  const Expr own = b_.lane_id(), n = n0_ + row_of();
  std::vector<Expr> results;
  for (int i = 0; i < height_; ++i) {
    Expr all = w_.zero(t_.width);
    for (int j = 0; j < t_.width; ++j) {
      Expr total = b_.fold(ScalarOp::add_, sum(i, j));
      for (int64_t apart = 1; apart < t_.columns; apart *= 2) total = total + b_.wave_shuffle(total, own ^ apart);
      all = t_.width == 1 ? total : b_.insert(all, total, j);
    }
    results.push_back(all);
  }
  const bool whole = p_.n.extent % t_.wave_rows() == 0;
  Expr writes = own % t_.columns == 0;
  if (!whole) writes = writes & (n < p_.n.extent);
  const Expr count = whole || t_.width == 1 ? Expr{} : min(p_.n.extent - n, w_.i64(t_.width));
  b_.branch(writes, [&] {
    for (int i = 0; i < height_; ++i) w_.finish_vector(results[i], w_.i64(i), n, count);
  });
}

// Every wave has its own rows, tile after tile of them: blocks take turns, so that no block has one more tile for each
// of its waves. The first stages of the next tile are copied while the last ones of a tile are multiplied. Waves
// synchronize once, when the activations are ready.
void SkinnyDotKernel::write_block(Expr block) {
  const int64_t blocks = blocks_of_outer(), all = blocks * t_.waves;
  w_.enter_outer_of_block(block / blocks);
  const WeightCopies::Shape shape{
      t_.wave_rows(),    t_.stage_units() * t_.unit_bytes, t_.pitch, t_.vector, t_.row_bytes, t_.stage_bytes(), m_.wave,
      t_.wave_rows() > 1};
  copies_ = std::make_unique<WeightCopies>(w_, p_, shape, t_.buffers * t_.stage_bytes(), Expr{});
  x_ = std::make_unique<SkinnyActivations>(w_, p_, t_, m_);
  if (t_.looks_up_pairs()) pairs_ = std::make_unique<PairTable>(b_, m_, t_.pairs);
  if (t_.codes) words_ = std::make_unique<StreamWords>(b_, m_, *t_.codes, t_.integers->row.a, t_.aligned());
  for (int i = 0; i < height_ * t_.width; ++i) sums_.push_back(b_.alloc(wide() * 4, 16));
  const BufferId slot = b_.alloc(8, 8);  // of the stage that is multiplied
  const int64_t ahead = pipeline_.ahead(), stages = t_.stages();
  const auto enter = [&](Expr lane, Expr tile) {
    n0_ = tile * t_.wave_rows();
    copies_->enter(n0_, lane / m_.wave * (t_.wave_rows() * t_.pitch));
  };
  // Stage `stage` of a tile, or of a following tile if it is past the last.
  const auto begin = [&](Expr lane, Expr tile, Expr stage, Expr number) {
    Expr over = stage, in = w_.i64(0);
    if (stages > 1) {
      over = stage / stages;
      in = stage % stages;
    }
    const Expr of = tile + over * all;
    b_.branch(of < tiles_, [&] {
      enter(lane, of);
      copies_->begin(b_.lane_id(), in, number);
    });
  };
  const auto first_tile = [&](Expr lane) { return block % blocks + lane / m_.wave * blocks; };
  // Limits the early copies: activations would wait for them on launches that wait for no earlier kernel.
  const int64_t early =
      m_.follows && w_.hold_constant(1) ? std::min(ahead, ceil_div(kEarlyBytes, t_.stage_bytes())) : 0;
  w_.where_row(w_.i64(0), [&] {
    lanes([&](Expr lane) {
      b_.store(slot, w_.i64(0), w_.i64(0), 8);
      const SoftwarePipeline::Prologue prologue{
          .constant = [&](int64_t i) { begin(lane, first_tile(lane), w_.i64(i), w_.i64(i)); },
          .early = early,
          .waits = early > 0};
      pipeline_.begin_early(prologue);
      if (t_.looks_up_pairs()) pairs_->fill(lane, t_.lanes(m_.wave));
      if (t_.codes) words_->fill(lane);
      pipeline_.wait_for_kernels(prologue);
      x_->fill(lane, [&] { pipeline_.begin_first(prologue); });
    });
    b_.barrier();
    lanes([&](Expr lane) {
      w_.check_pick();
      if (t_.codes) words_->enter();
      b_.loop(LoopKind::serial, first_tile(lane), w_.i64(tiles_), all, [&](Expr tile) {
        for (const BufferId s : sums_) b_.store(s, w_.zero(wide()), w_.i64(0), 4);
        b_.loop(LoopKind::serial, w_.i64(0), w_.i64(stages), 1, [&](Expr stage) {
          const Expr now = b_.load(slot, {Scalar::i64, 1}, w_.i64(0), 8);
          const auto is = [&](int64_t x) { return now == x; };
          const auto begin_next = [&](Expr) {
            const Expr last = select(is(0), w_.i64(ahead), now - 1);
            begin(lane, tile, stage + ahead, last);
          };
          const auto use = [&](Expr) {
            enter(lane, tile);
            multiply(lane, stage, now);
          };
          pipeline_.step({.begin = begin_next, .use = use});
          b_.store(slot, select(is(ahead), w_.i64(0), now + 1), w_.i64(0), 8);
        });
        enter(lane, tile);
        write_sums();
      });
    });
  });
}

}  // namespace

Step write_skinny_dot(const graph::Graph& g, const DotProblem& p, const SkinnyDotPlan& t, const machine::Machine& m) {
  Step step = SkinnyDotKernel(g, p, t, m).write(fmt::format("{} {}", describe_shape(p), describe(t, p)));
  step.flops = p.flops();
  return step;
}

}  // namespace lumen::synth
