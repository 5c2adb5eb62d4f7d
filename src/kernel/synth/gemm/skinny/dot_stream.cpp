// The nest of a block: stages of K of its rows of b, copied as they lie in memory, `buffers` - 1 of them under way.
// Every lane sums its units of its rows; the lanes of a row add up at the end, in a fixed order.
#include "kernel/synth/gemm/skinny/dot_stream.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_write.h"
#include "kernel/synth/gemm/skinny/stream_activations.h"
#include "kernel/synth/gemm/skinny/stream_copies.h"
#include "kernel/synth/step/ceil_div.h"
#include "kernel/synth/unpack/bits_as.h"

namespace lumen::synth {
namespace {

using loop::BufferId;
using loop::Flow;
using loop::LoopKind;
using loop::VType;
using Value = loop::ValueId;

constexpr int kQuad = 4;
constexpr int64_t kEarlyBytes = 48 << 10;  // about 1.5 us of a multiprocessor's share of the memory
constexpr int kPartsOfSum = 8;             // dots that wait for each other

class StreamKernel {
 public:
  StreamKernel(const graph::Graph& g, const DotProblem& p, const StreamPlan& t, const machine::Machine& m)
      : p_(p), t_(t), m_(m), height_(static_cast<int>(p.m.extent)), w_(g, p, "dot"), b_(w_.b) {}

  Step write(std::string plan) {
    tiles_ = ceil_div(p_.n.extent, t_.wave_rows());
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(p_.outer_extent() * blocks_of_outer()), 1,
            [&](Value block) { write_block(block); });
    return w_.step(std::move(plan));
  }

 private:
  int64_t blocks_of_outer() const {
    return std::min(ceil_div(tiles_, t_.waves), std::max<int64_t>(1, t_.blocks / p_.outer_extent()));
  }
  void lanes(const std::function<void(Value)>& body) {
    b_.loop(LoopKind::lane, w_.i64(0), w_.i64(t_.lanes(m_.wave)), 1, body);
  }
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, w_.i64(y)); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, w_.i64(y)); }
  void multiply(Value lane, Value stage, Value number);
  void sum_integers(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j);
  void sum_values(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j);
  void sum_pairs(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j);
  using AddRun = std::function<void(std::vector<Value>&, Value, const std::vector<int64_t>&)>;
  std::vector<Value> sum_codes(Unpack& cursor, int64_t group, const AddRun& add);
  std::vector<Value> words_of(Unpack& cursor, const std::vector<int64_t>& vector);  // codes of four elements each
  void finish_group(Unpack& cursor, int64_t first, const std::vector<Value>& parts, const std::vector<Value>& xs,
                    int j);
  void write_block(Value block);
  void write_sums();
  // Lanes of a sum: one of integers, two of pairs, else a quad.
  int wide() const { return t_.integers ? 1 : t_.looks_up_pairs() ? 2 : kQuad; }
  VType codes_of_word() const { return {t_.integers->row.a, kQuad}; }
  BufferId sum_at(int i, int j) const { return sums_[static_cast<size_t>(i * t_.width + j)]; }
  Value sum(int i, int j) { return b_.load(sum_at(i, j), {Scalar::f32, wide()}, w_.i64(0), 4); }
  void set_sum(int i, int j, Value v) { b_.store(sum_at(i, j), v, w_.i64(0), 4); }
  Value row_of() { return w_.scaled(div(b_.lane_id(), t_.columns), t_.width); }  // of its wave, the first of a lane

  const DotProblem& p_;
  const StreamPlan& t_;
  const machine::Machine& m_;
  const int height_;
  DotWriter w_;
  loop::Builder& b_;
  int64_t tiles_ = 1;
  std::unique_ptr<StreamCopies> copies_;
  std::unique_ptr<PairTable> pairs_;
  std::unique_ptr<StreamWords> words_;
  std::unique_ptr<StreamActivations> x_;
  std::vector<BufferId> sums_;
  Value n0_ = -1;
};

// For every group of a unit: the sum of products of codes, in integers, then its scales.
void StreamKernel::sum_integers(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j) {
  const IntegerDot& d = *t_.integers;
  const std::string dot = fmt::format("dot4.{}i8.i32", scalar_name(d.row.a));
  const VType one{Scalar::f32, 1}, whole{Scalar::i32, 1};
  const int64_t groups = t_.unit / d.fine;
  const Value scales = lanes_by_group(b_, cursor, d.form.scale, d.fine, t_.unit);
  const Value offsets = d.form.offset ? lanes_by_group(b_, cursor, *d.form.offset, d.fine, t_.unit) : -1;
  const auto finish = [&](int64_t g, const std::vector<Value>& products) {
    const auto lane_of = [&](Value v) { return b_.type(v).lanes == 1 ? v : b_.extract(v, static_cast<int>(g)); };
    for (int i = 0; i < height_; ++i) {
      const StreamActivations::Numbers x = x_->numbers(at[static_cast<size_t>(i)], g);
      const Value dots = b_.convert(ScalarOp::cast_, Scalar::f32, products[static_cast<size_t>(i)]);
      Value term = -1;
      if (t_.bias() == 0)
        term = b_.mul(dots, x.scale);
      else
        term = b_.op(ScalarOp::fma_, dots, x.scale, offsets < 0 ? x.total : b_.mul(x.total, b_.real(t_.bias(), one)));
      Value all = b_.op(ScalarOp::fma_, lane_of(scales), term, sum(i, j));
      if (offsets >= 0) all = b_.op(ScalarOp::fma_, lane_of(offsets), x.total, all);
      set_sum(i, j, all);
    }
  };
  const auto add = [&](std::vector<Value>& products, Value q, const std::vector<int64_t>& run) {
    for (int i = 0; i < height_; ++i) {
      Value& product = products[static_cast<size_t>(i)];
      product = b_.inst(dot, whole, {product, q, x_->word(at[static_cast<size_t>(i)], run)});
    }
  };
  if (t_.codes) {
    for (int64_t g = 0; g < groups; ++g) {
      const std::vector<Value> products = sum_codes(cursor, g, add);
      finish(g, products);
    }
    return;
  }
  std::vector<std::vector<Value>> products(static_cast<size_t>(groups));
  for (auto& of : products) of.assign(static_cast<size_t>(height_), b_.integer(0, whole));
  std::vector<size_t> left(static_cast<size_t>(groups), static_cast<size_t>(d.fine / kQuad));
  for (const std::vector<int64_t>& vector : t_.order.vectors) {
    const std::vector<Value> codes = words_of(cursor, vector);
    for (size_t first = 0; first < vector.size(); first += kQuad) {
      const int from = static_cast<int>(first);
      const std::vector<int64_t> run(vector.begin() + from, vector.begin() + from + kQuad);
      const auto g = static_cast<size_t>(run[0] / d.fine);
      add(products[g], codes[first / kQuad], run);
      if (--left[g] == 0) finish(static_cast<int64_t>(g), products[g]);
    }
  }
}

// A group's sums: their own for parts that count alike, and for every few of them, so that few instructions wait
// for each other.
std::vector<Value> StreamKernel::sum_codes(Unpack& cursor, int64_t group, const AddRun& add) {
  const VType whole{Scalar::i32, 1};
  struct Sum {
    std::vector<Value> products;
    int parts = 0;
  };
  std::map<int, std::vector<Sum>> sums;  // by exponent
  const std::vector<Value> none(static_cast<size_t>(height_), b_.integer(0, whole));
  for (const StreamCodes::Run& run : t_.codes->runs) {
    if (run.elements[0] / t_.integers->fine != group) continue;
    for (const StreamWords::Term& term : words_->terms(cursor, run)) {
      std::vector<Sum>& alike = sums[term.exponent];
      if (alike.empty() || alike.back().parts == kPartsOfSum) alike.push_back({none, 0});
      add(alike.back().products, term.bytes, {run.elements.begin(), run.elements.end()});
      ++alike.back().parts;
    }
  }
  std::vector<Value> all;
  for (const auto& [exponent, alike] : sums)
    for (const Sum& sum : alike)
      for (size_t i = 0; i < none.size(); ++i) {
        const int64_t counts = int64_t{1} << (exponent - t_.codes->least);
        const Value product = b_.mul(sum.products[i], b_.integer(counts, whole));
        if (all.size() == i)
          all.push_back(product);
        else
          all[i] = b_.add(all[i], product);
      }
  return all;
}

// Sums of values over runs of equal scale, then the scale.
void StreamKernel::sum_values(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j) {
  const ScaledForm& form = *t_.scaled;
  const int64_t run = std::gcd(form.group, t_.unit);
  for (int64_t first = 0; first < t_.unit; first += run) {
    const int step = static_cast<int>(std::gcd<int64_t>(run, 16));
    std::vector<Value> parts(static_cast<size_t>(height_), form.scale || form.offset ? w_.zero(kQuad) : -1);
    for (int i = 0; i < height_ && !form.scale && !form.offset; ++i) parts[static_cast<size_t>(i)] = sum(i, j);
    std::vector<Value> xs(static_cast<size_t>(height_), w_.zero(kQuad));
    for (int64_t position = first; position < first + run; position += step) {
      const Value values = cursor.expression(form.value, position, step, true);
      for (int quad = 0; quad < step / kQuad; ++quad) {
        const int lane = quad * kQuad;
        const Value four = step == kQuad ? values : b_.shuffle({values}, {lane, lane + 1, lane + 2, lane + 3});
        for (int i = 0; i < height_; ++i) {
          const Value x = x_->quad(at[static_cast<size_t>(i)], (position + lane) / kQuad);
          Value& part = parts[static_cast<size_t>(i)];
          part = b_.op(ScalarOp::fma_, four, x, part);
          if (form.offset) xs[static_cast<size_t>(i)] = b_.add(xs[static_cast<size_t>(i)], x);
        }
      }
    }
    finish_group(cursor, first, parts, xs, j);
  }
}

// Sums += scale * sums of products + offset * sums of activations.
void StreamKernel::finish_group(Unpack& cursor, int64_t first, const std::vector<Value>& parts,
                                const std::vector<Value>& xs, int j) {
  const ScaledForm& form = *t_.scaled;
  for (int i = 0; i < height_; ++i) {
    Value all = parts[static_cast<size_t>(i)];
    const auto times = [&](const RoutineExpr& e, Value x, Value to) {
      return b_.op(ScalarOp::fma_, b_.splat(cursor.expression(e, first, 1, false), wide()), x, to);
    };
    if (form.scale)
      all = times(*form.scale, all, sum(i, j));
    else if (form.offset)
      all = b_.add(all, sum(i, j));
    if (form.offset) all = times(*form.offset, xs[static_cast<size_t>(i)], all);
    set_sum(i, j, all);
  }
}

std::vector<Value> StreamKernel::words_of(Unpack& cursor, const std::vector<int64_t>& vector) {
  std::vector<Value> out;
  if (!t_.looks_up_pairs()) {
    const Value codes = integer_codes(b_, cursor, *t_.integers, m_, vector);
    for (int first = 0; first < static_cast<int>(vector.size()); first += kQuad)
      out.push_back(b_.shuffle({codes}, {first, first + 1, first + 2, first + 3}));
    return out;
  }
  const VType word{Scalar::u32, 1};
  std::vector<int64_t> low, high;
  for (size_t i = 0; i < vector.size(); i += 2) {
    low.push_back(vector[i]);
    high.push_back(vector[i + 1]);
  }
  const std::vector<Value> entries = pairs_->look_up(cursor, low, high, word);
  for (size_t i = 0; i < entries.size(); i += 2) {
    const Value first = b_.op(ScalarOp::and_, entries[i], b_.integer(0xffff, word));
    const Value second = b_.op(ScalarOp::and_, entries[i + 1], b_.integer(0xffff0000, word));
    out.push_back(bits_as(b_, b_.op(ScalarOp::or_, first, second), codes_of_word()));
  }
  return out;
}

void StreamKernel::sum_pairs(Unpack& cursor, const std::vector<StreamActivations::Place>& at, int j) {
  const ScaledForm& form = *t_.scaled;
  const int64_t group = std::gcd(form.group, t_.unit);
  const bool scaled = form.scale || form.offset;
  for (int64_t first = 0; first < t_.unit; first += group) {
    std::vector<StreamPlan::Pair> pairs;
    for (const StreamPlan::Pair& p : t_.pair_order)
      if (p.low / group == first / group) pairs.push_back(p);
    std::vector<Value> parts, xs(static_cast<size_t>(height_), w_.zero(2));
    for (int i = 0; i < height_; ++i) parts.push_back(scaled ? w_.zero(2) : sum(i, j));
    const size_t step = pairs.size() % 16 == 0 ? 16 : pairs.size() % 8 == 0 ? 8 : 4;
    for (size_t from = 0; from < pairs.size(); from += step) {
      std::vector<int64_t> low, high;
      for (size_t k = from; k < from + step; ++k) {
        low.push_back(pairs[k].low);
        high.push_back(pairs[k].high);
      }
      const std::vector<Value> entries = pairs_->look_up(cursor, low, high, {Scalar::f16, 2});
      for (size_t k = 0; k < step; ++k) {
        const Value values = b_.convert(ScalarOp::cast_, Scalar::f32, entries[k]);
        for (int i = 0; i < height_; ++i) {
          const auto x_of = [&](int64_t e) {
            return b_.extract(x_->quad(at[static_cast<size_t>(i)], e / kQuad), static_cast<int>(e % kQuad));
          };
          const Value x = b_.insert(b_.splat(x_of(low[k]), 2), x_of(high[k]), 1);
          Value& part = parts[static_cast<size_t>(i)];
          part = b_.op(ScalarOp::fma_, values, x, part);
          if (form.offset) xs[static_cast<size_t>(i)] = b_.add(xs[static_cast<size_t>(i)], x);
        }
      }
    }
    if (scaled)
      finish_group(cursor, first, parts, xs, j);
    else
      for (int i = 0; i < height_; ++i) set_sum(i, j, parts[static_cast<size_t>(i)]);
  }
}

void StreamKernel::multiply(Value lane, Value stage, Value number) {
  const DotLoad& load = p_.loads[1];
  const Value column = rem(b_.lane_id(), t_.columns), row = row_of();
  for (int64_t deep = 0; deep < t_.deep; ++deep) {
    const Value group = w_.add(w_.scaled(stage, t_.deep), w_.i64(deep));
    const auto all = [&] {
      std::vector<StreamActivations::Place> at;
      for (int i = 0; i < height_; ++i) at.push_back(x_->place(i, group, column));
      for (int j = 0; j < t_.width; ++j) {
        Unpack cursor(b_, *load.format, w_.buffer(1), load.rows, load.columns);
        cursor.use(m_);
        if (load.format->row_bytes > 0 || load.format->tensor_bytes > 0) {
          const Value n = copies_->clamped(w_.add(row, w_.i64(j)));
          cursor.enter_row(div(w_.add(w_.base(1), w_.scaled(n, p_.n.strides[1])), load.columns));
        }
        const Value byte = w_.add(
            w_.add(w_.scaled(number, t_.stage_bytes()), w_.scaled(div(lane, m_.wave), t_.wave_rows() * t_.pitch)),
            w_.add(w_.scaled(w_.add(row, w_.i64(j)), t_.pitch),
                   w_.add(w_.scaled(column, t_.unit_bytes), w_.i64(deep * t_.columns * t_.unit_bytes))));
        cursor.enter_copied(w_.i64(0), t_.unit_blocks, copies_->buffer(), byte);
        if (t_.integers)
          sum_integers(cursor, at, j);
        else if (t_.looks_up_pairs())
          sum_pairs(cursor, at, j);
        else
          sum_values(cursor, at, j);
      }
    };
    if (t_.units % t_.stage_units() == 0)
      all();
    else
      b_.branch(b_.op(ScalarOp::lt_, w_.add(w_.scaled(group, t_.columns), column), w_.i64(t_.units)), all);
  }
}

void StreamKernel::write_sums() {
  const Value own = b_.lane_id(), n = w_.add(n0_, row_of());
  std::vector<Value> results;
  for (int i = 0; i < height_; ++i) {
    Value all = w_.zero(t_.width);
    for (int j = 0; j < t_.width; ++j) {
      Value total = b_.fold(ScalarOp::add_, sum(i, j));
      for (int64_t apart = 1; apart < t_.columns; apart *= 2)
        total = b_.add(total, b_.exchange(total, b_.op(ScalarOp::xor_, own, w_.i64(apart))));
      all = t_.width == 1 ? total : b_.insert(all, total, j);
    }
    results.push_back(all);
  }
  const bool whole = p_.n.extent % t_.wave_rows() == 0;
  Value writes = b_.op(ScalarOp::eq_, rem(own, t_.columns), w_.i64(0));
  if (!whole) writes = b_.op(ScalarOp::and_, writes, b_.op(ScalarOp::lt_, n, w_.i64(p_.n.extent)));
  const Value count =
      whole || t_.width == 1 ? -1 : w_.min(b_.op(ScalarOp::sub_, w_.i64(p_.n.extent), n), w_.i64(t_.width));
  b_.branch(writes, [&] {
    for (int i = 0; i < height_; ++i) w_.finish_vector(results[static_cast<size_t>(i)], w_.i64(i), n, count);
  });
}

// Every wave has rows of its own, tile after tile of them: blocks take turns, so that none has a tile more for each of
// its waves. The first stages of the next tile are copied while the last
// ones of a tile are multiplied. Waves meet once, when the activations are there.
void StreamKernel::write_block(Value block) {
  const int64_t blocks = blocks_of_outer(), all = blocks * t_.waves;
  w_.enter_outer_of_block(div(block, blocks));
  const StreamCopies::Shape shape{
      t_.wave_rows(),    t_.stage_units() * t_.unit_bytes, t_.pitch, t_.piece, t_.row_bytes, t_.stage_bytes(), m_.wave,
      t_.wave_rows() > 1};
  copies_ = std::make_unique<StreamCopies>(w_, p_, shape, t_.buffers * t_.stage_bytes(), -1);
  x_ = std::make_unique<StreamActivations>(w_, p_, t_, m_);
  if (t_.looks_up_pairs()) pairs_ = std::make_unique<PairTable>(b_, m_, t_.pairs);
  if (t_.codes) words_ = std::make_unique<StreamWords>(b_, m_, *t_.codes, t_.aligned());
  for (int i = 0; i < height_ * t_.width; ++i) sums_.push_back(b_.alloc(wide() * 4, 16));
  const BufferId slot = b_.alloc(8, 8);  // of the stage that is multiplied
  const int64_t ahead = t_.buffers - 1, stages = t_.stages();
  const auto enter = [&](Value lane, Value tile) {
    n0_ = w_.scaled(tile, t_.wave_rows());
    copies_->enter(n0_, w_.scaled(div(lane, m_.wave), t_.wave_rows() * t_.pitch));
  };
  // Stage `stage` of a tile, or of one behind it.
  const auto begin = [&](Value lane, Value tile, Value stage, Value number) {
    Value over = -1, in = -1;
    if (stages == 1) {
      over = stage;
      in = w_.i64(0);
    } else {
      over = div(stage, stages);
      in = rem(stage, stages);
    }
    const Value of = w_.add(tile, w_.scaled(over, all));
    b_.branch(b_.op(ScalarOp::lt_, of, w_.i64(tiles_)), [&] {
      enter(lane, of);
      copies_->begin(b_.lane_id(), in, number);
    });
  };
  const auto first_tile = [&](Value lane) { return w_.add(rem(block, blocks), w_.scaled(div(lane, m_.wave), blocks)); };
  // Stages that are copied while kernels before still work; no more, for activations would wait for them where none do.
  const int64_t early =
      m_.follows && w_.hold_constant(1) ? std::min(ahead, ceil_div(kEarlyBytes, t_.stage_bytes())) : 0;
  w_.where_row(w_.i64(0), [&] {
    lanes([&](Value lane) {
      b_.store(slot, w_.i64(0), w_.i64(0), 8);
      const auto copies = [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          begin(lane, first_tile(lane), w_.i64(i), w_.i64(i));
          b_.commit(Flow::copies);
        }
      };
      copies(0, early);
      if (t_.looks_up_pairs()) pairs_->fill(lane, t_.lanes(m_.wave));
      if (t_.codes) words_->fill(lane);
      if (early > 0) b_.wait(Flow::kernels, 0);
      x_->fill(lane, [&] { copies(early, ahead); });
    });
    b_.barrier();
    lanes([&](Value lane) {
      w_.check_pick();
      if (t_.codes) words_->enter();
      b_.loop(LoopKind::serial, first_tile(lane), w_.i64(tiles_), all, [&](Value tile) {
        for (const BufferId s : sums_) b_.store(s, w_.zero(wide()), w_.i64(0), 4);
        b_.loop(LoopKind::serial, w_.i64(0), w_.i64(stages), 1, [&](Value stage) {
          const Value now = b_.load(slot, {Scalar::i64, 1}, w_.i64(0), 8);
          const auto is = [&](int64_t x) { return b_.op(ScalarOp::eq_, now, w_.i64(x)); };
          b_.wait(Flow::copies, static_cast<int>(ahead) - 1);
          b_.meet();
          const Value last = b_.op(ScalarOp::select_, is(0), w_.i64(ahead), b_.op(ScalarOp::sub_, now, w_.i64(1)));
          begin(lane, tile, w_.add(stage, w_.i64(ahead)), last);
          b_.commit(Flow::copies);
          enter(lane, tile);
          multiply(lane, stage, now);
          b_.store(slot, b_.op(ScalarOp::select_, is(ahead), w_.i64(0), w_.add(now, w_.i64(1))), w_.i64(0), 8);
        });
        enter(lane, tile);
        write_sums();
      });
    });
  });
}

}  // namespace

Step write_stream_kernel(const graph::Graph& g, const DotProblem& p, const StreamPlan& t, const machine::Machine& m) {
  Step step = StreamKernel(g, p, t, m).write(fmt::format("{} {}", describe_shape(p), describe(t, p)));
  step.flops = p.flops();
  return step;
}

}  // namespace lumen::synth
