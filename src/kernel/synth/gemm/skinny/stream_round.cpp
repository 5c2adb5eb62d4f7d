// See stream_round.h. A block has a row. An item is a run of pieces that one lane has: whole groups, where they are
// summed.
#include "kernel/synth/gemm/skinny/stream_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {
namespace {

using loop::LoopKind;
using Value = loop::ValueId;

constexpr int64_t kPiece = MatrixStreamPlan::kPiece, kLine = MatrixStreamPlan::kLine;
constexpr int64_t kBlockLanes = 512, kUnrolled = 8;  // lanes; rounds
constexpr int64_t kFour = 4;
// Bits of f32: what its exponent's lowest bit counts; an exponent and one's together, so that the greatest number
// becomes at least 2^14; an exponent and its inverse's together.
constexpr int64_t kExponent = int64_t{1} << 23, kToF16 = 268 * kExponent, kToInverse = 254 * kExponent;
constexpr int64_t kLeastExponent = 15, kExponents = 255 * kExponent;

class RoundKernel {
 public:
  RoundKernel(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t, const machine::Machine& m,
              const RoundedScratch& s)
      : p_(p.only_a()), t_(t), m_(m), w_(g, p_, "round"), b_(w_.b) {
    lines_ = w_.scratch_param("lines", s.lines, t_.line_bytes(), true);
    if (s.sums >= 0) sums_ = w_.scratch_param("sums", s.sums, t_.sum_bytes(), true);
    if (s.scales >= 0) scales_ = w_.scratch_param("scales", s.scales, t_.rows * kFour, true);
    for (run_ = 1; run_ < t_.pieces() && !find_runs(run_); ++run_) {
    }
    if (run_ == t_.pieces()) find_runs(run_);
    aligned_ = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
    for (const DotIndex& i : p_.outer) aligned_ = aligned_ && i.strides[0] % 4 == 0;
    aligned_ = aligned_ && t_.order.unit % 4 == 0 && t_.order.lane_elements % 4 == 0 && near_ % 4 == 0 && far_ % 4 == 0;
  }

  Step write() {
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(t_.rows), 1, [&](Value row) { write_row(row); });
    return w_.step(fmt::format("round {}x{} to {} in units of {}", t_.rows, p_.k.extent, scalar_name(t_.factor.to),
                               t_.order.unit));
  }

 private:
  struct Item {
    Value unit = -1, run = -1, lane_k = -1;
  };
  bool find_runs(int64_t run);
  void write_row(Value row);
  void each(int64_t all, const std::function<void(Value)>& body);
  void find_scale(Value lane);
  void write_item(Value number, int64_t all);
  Value load(Value element, int64_t piece);
  // A number for each element of a piece that begins so many behind the item's first.
  Value of_places(int64_t first, const std::function<double(int)>& number) {
    std::vector<double> out;
    for (int64_t i = first; i < first + kPiece; ++i) out.push_back(number(t_.places[static_cast<size_t>(i)]));
    return b_.lanes_real(out, Scalar::f32);
  }
  void put_sums(const Item& at, const std::vector<Value>& rounded, Value exists);
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, b_.i64(y)); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, b_.i64(y)); }

  DotProblem p_;
  const MatrixStreamPlan& t_;
  const machine::Machine& m_;
  DotWriter w_;
  loop::Builder& b_;
  loop::BufferId lines_ = -1, sums_ = -1, scales_ = -1, most_ = -1;
  Value row_ = -1, first_ = -1, scale_ = -1;  // of what is laid out; its first element; what its numbers are times
  int64_t run_ = 1;                           // pieces of an item
  // Elements from an item's to the next one's of the unit: so many of them follow each other, then those behind them.
  int64_t near_together_ = 1, near_ = 0, far_ = 0;
  bool aligned_ = true;
};

// Whether places follow a pattern after so many pieces: within groups, or over all of them. Whole groups, where they
// are summed.
bool RoundKernel::find_runs(int64_t run) {
  for (size_t i = 0; i < t_.places.size(); ++i)
    if (t_.places[i] != t_.places[i % static_cast<size_t>(run * kPiece)]) return false;
  const std::vector<int64_t>& e = t_.order.elements;
  const int64_t step = run * kPiece, count = static_cast<int64_t>(e.size()), own = t_.order.of_group();
  if (count % step != 0 || (t_.sums_activations() && step % own != 0)) return false;
  for (const int64_t together : {int64_t{1}, own / step}) {
    if (together == 0 || count % (together * step) != 0) continue;
    const auto after = [&](int64_t i) { return i < count ? e[static_cast<size_t>(i)] - e[0] : 0; };
    near_together_ = together;
    near_ = together > 1 ? after(step) : 0;
    far_ = after(together * step);
    bool follows = true;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = i / step;
      follows = follows && e[static_cast<size_t>(i)] ==
                               e[static_cast<size_t>(i % step)] + number % together * near_ + number / together * far_;
    }
    if (follows) return true;
  }
  return false;
}

// Eight elements in the order of the weight's, by loads of those that lie beside each other.
Value RoundKernel::load(Value element, int64_t piece) {
  const auto from = t_.order.elements.begin() + static_cast<std::ptrdiff_t>(piece * kPiece);
  const std::vector<int64_t> wanted(from, from + kPiece);
  std::vector<int64_t> sorted = wanted;
  std::sort(sorted.begin(), sorted.end());
  Value out = b_.real(0, {Scalar::f32, static_cast<int>(kPiece)});
  const Value at = b_.add(first_, element);
  for (size_t i = 0; i < sorted.size();) {
    size_t count = 1;
    while (count < 4 && i + count < sorted.size() && sorted[i + count] == sorted[i] + static_cast<int64_t>(count))
      ++count;
    if (count == 3 || sorted[i] % static_cast<int64_t>(count) != 0) count = 1;
    const int align = aligned_ ? static_cast<int>(4 * count) : 4;
    const Value some = b_.load(w_.buffer(0), {Scalar::f32, static_cast<int>(count)},
                               w_.scaled(b_.add(at, b_.i64(sorted[i])), 4), align);
    for (size_t j = 0; j < count; ++j) {
      const auto lane = std::find(wanted.begin(), wanted.end(), sorted[i + j]) - wanted.begin();
      out = b_.insert(out, count == 1 ? some : b_.extract(some, static_cast<int>(j)), static_cast<int>(lane));
    }
    i += count;
  }
  return out;
}

// Rows that do not exist are what the last one is.
void RoundKernel::write_row(Value row) {
  row_ = row;
  Value inside = row;
  if (t_.rows_anywhere) {
    w_.enter_outer_of_block(w_.i64(0));
  } else {
    w_.enter_outer_of_block(div(row, t_.columns));
    inside = rem(row, t_.columns);
  }
  if (t_.rows_anywhere || t_.columns != p_.m.extent) inside = w_.min(inside, b_.i64(p_.m.extent - 1));
  first_ = b_.add(w_.base(0), w_.scaled(inside, p_.m.strides[0]));
  const auto lanes = [&](const std::function<void(Value)>& body) {
    b_.loop(LoopKind::lane, w_.i64(0), w_.i64(kBlockLanes), 1, body);
  };
  if (scales_ >= 0) {
    most_ = b_.alloc(kBlockLanes / m_.wave * kFour, 128, loop::Space::shared);
    lanes([&](Value lane) {
      const loop::BufferId most = b_.alloc(kFour);
      b_.store(most, b_.real(0, {Scalar::f32, 1}), w_.i64(0), kFour);
      const int64_t all = p_.k.extent / kFour;
      each(all, [&](Value round) {
        const Value four = w_.min(w_.add(w_.scaled(round, kBlockLanes), lane), w_.i64(all - 1));
        const Value x = b_.load(w_.buffer(0), {Scalar::f32, kFour},
                                w_.scaled(w_.add(first_, w_.scaled(four, kFour)), 4), aligned_ ? 16 : 4);
        const Value here = b_.fold(ScalarOp::max_, b_.op(ScalarOp::abs_, x));
        b_.store(most, b_.op(ScalarOp::max_, b_.load(most, {Scalar::f32, 1}, w_.i64(0), kFour), here), w_.i64(0),
                 kFour);
      });
      const Value of_wave = b_.fold_wave(ScalarOp::max_, b_.load(most, {Scalar::f32, 1}, w_.i64(0), kFour), m_.wave);
      b_.branch(b_.op(ScalarOp::eq_, rem(lane, m_.wave), w_.i64(0)),
                [&] { b_.store(most_, of_wave, w_.scaled(div(lane, m_.wave), kFour), kFour); });
    });
    b_.barrier();
  }
  lanes([&](Value lane) {
    if (scales_ >= 0) find_scale(lane);
    const int64_t all = t_.units * (t_.pieces() / run_) * t_.lanes_k;
    each(all, [&](Value round) { write_item(w_.add(w_.scaled(round, kBlockLanes), lane), all); });
  });
}

// As many rounds as it takes for a lane to have one of each.
void RoundKernel::each(int64_t all, const std::function<void(Value)>& body) {
  const int64_t rounds = (all + kBlockLanes - 1) / kBlockLanes;
  if (rounds > kUnrolled) return b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rounds), 1, body);
  for (int64_t i = 0; i < rounds; ++i) body(w_.i64(i));
}

// A power of two.
void RoundKernel::find_scale(Value lane) {
  const loop::VType word{Scalar::u32, 1};
  const auto waves = static_cast<int>(kBlockLanes / m_.wave);
  const Value most = b_.fold(ScalarOp::max_, b_.load(most_, {Scalar::f32, waves}, w_.i64(0), 16));
  const Value bits = b_.convert(ScalarOp::bitcast_, Scalar::u32, most);
  const Value exponent = b_.op(ScalarOp::max_, b_.op(ScalarOp::and_, bits, b_.integer(kExponents, word)),
                               b_.integer(kLeastExponent * kExponent, word));
  const Value scale = b_.op(ScalarOp::sub_, b_.integer(kToF16, word), exponent);
  const Value inverse = b_.op(ScalarOp::sub_, b_.integer(kToInverse, word), scale);
  scale_ = b_.convert(ScalarOp::bitcast_, Scalar::f32, scale);
  b_.branch(b_.op(ScalarOp::eq_, lane, w_.i64(0)), [&] {
    b_.store(scales_, b_.convert(ScalarOp::bitcast_, Scalar::f32, inverse), w_.scaled(row_, kFour), kFour);
  });
}

// Lanes that have no item repeat the last.
void RoundKernel::write_item(Value number, int64_t all) {
  const Value exists = all % kBlockLanes == 0 ? -1 : b_.op(ScalarOp::lt_, number, b_.i64(all));
  if (exists >= 0) number = w_.min(number, b_.i64(all - 1));
  Item at;
  at.lane_k = rem(number, t_.lanes_k);
  const Value rest = div(number, t_.lanes_k);
  const int64_t runs = t_.pieces() / run_;
  at.run = rem(rest, runs);
  at.unit = div(rest, runs);
  const Value inside =
      b_.add(w_.scaled(rem(at.run, near_together_), near_), w_.scaled(div(at.run, near_together_), far_));
  const Value element =
      b_.add(w_.scaled(at.unit, t_.order.unit), b_.add(inside, w_.scaled(at.lane_k, t_.order.lane_elements)));
  std::vector<Value> rounded;
  for (int64_t i = 0; i < run_; ++i) {
    Value x = load(element, i);
    if (scale_ >= 0) x = b_.mul(x, b_.splat(scale_, static_cast<int>(kPiece)));
    // An item's places are those of the unit's first: they follow the order (find_runs).
    if (!t_.places.empty()) x = b_.mul(x, of_places(i * kPiece, [](int place) { return std::ldexp(1.0, -place); }));
    rounded.push_back(b_.convert(ScalarOp::cast_, t_.factor.to, x));
  }
  const auto write = [&] {
    const Value piece = w_.add(w_.scaled(at.unit, t_.pieces()), w_.scaled(at.run, run_));
    const Value line = w_.add(w_.scaled(w_.add(w_.scaled(piece, t_.rows), row_), t_.lanes_k), at.lane_k);
    for (size_t i = 0; i < rounded.size(); ++i)
      b_.store(lines_, rounded[i],
               w_.scaled(w_.add(line, b_.i64(static_cast<int64_t>(i) * t_.rows * t_.lanes_k)), kLine), kLine);
  };
  if (exists < 0)
    write();
  else
    b_.branch(exists, write);
  if (sums_ >= 0) put_sums(at, rounded, exists);
}

// Sums of what was rounded, so that what products with it have too much is what is taken off.
void RoundKernel::put_sums(const Item& at, const std::vector<Value>& rounded, Value exists) {
  const int64_t own = t_.order.of_group(), groups = run_ * kPiece / own;
  std::vector<Value> wide, totals;
  for (const Value x : rounded) {
    wide.push_back(b_.convert(ScalarOp::cast_, Scalar::f32, x));
    if (t_.places.empty()) continue;
    const auto lacks = [&](int place) { return t_.factor.lacks_at(place) / t_.factor.lacks(); };
    wide.back() = b_.mul(wide.back(), of_places(static_cast<int64_t>(wide.size() - 1) * kPiece, lacks));
  }
  for (int64_t g = 0; g < groups; ++g) {
    Value total = -1;
    for (int64_t first = g * own; first < (g + 1) * own; first += std::min(own, kPiece)) {
      Value some = wide[static_cast<size_t>(first / kPiece)];
      if (own < kPiece) {
        std::vector<int> mask;
        for (int64_t i = 0; i < own; ++i) mask.push_back(static_cast<int>(first % kPiece + i));
        some = b_.shuffle({some}, mask);
      }
      total = total < 0 ? some : b_.add(total, some);
    }
    total = b_.fold(ScalarOp::add_, total);
    for (int64_t apart = 1; apart < t_.lanes_k; apart *= 2)
      total = b_.add(total, b_.exchange(total, b_.op(ScalarOp::xor_, b_.lane_id(), b_.i64(apart))));
    totals.push_back(b_.mul(total, b_.real(t_.sum_factor(), {Scalar::f32, 1})));
  }
  Value leads = b_.op(ScalarOp::eq_, at.lane_k, b_.i64(0));
  if (exists >= 0) leads = b_.op(ScalarOp::and_, leads, exists);
  b_.branch(leads, [&] {
    const Value group = b_.add(w_.scaled(at.unit, t_.groups()), w_.scaled(at.run, groups));
    for (int64_t g = 0; g < groups; ++g) {
      const Value place = w_.add(w_.scaled(w_.add(group, b_.i64(g)), t_.rows), row_);
      b_.store(sums_, totals[static_cast<size_t>(g)], w_.scaled(place, 4), 4);
    }
  });
}

}  // namespace

RoundedScratch declare_rounded(const MatrixStreamPlan& t, Synthesis& out) {
  RoundedScratch s;
  s.lines = static_cast<int>(out.scratch.size());
  out.scratch.push_back(t.line_bytes());
  if (t.sums_activations()) {
    s.sums = static_cast<int>(out.scratch.size());
    out.scratch.push_back(t.sum_bytes());
  }
  if (t.scales_rows()) {
    s.scales = static_cast<int>(out.scratch.size());
    out.scratch.push_back(t.rows * kFour);
  }
  return s;
}

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t,
                        const machine::Machine& m, const RoundedScratch& scratch) {
  return RoundKernel(g, p, t, m, scratch).write();
}

}  // namespace lumen::synth
