// See activation_round.h. A block has a row. An item is a run of vectors of one lane: whole groups, if they are summed.
#include "kernel/synth/gemm/skinny/activation_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernel/synth/gemm/dot_write.h"

namespace lumen::synth {
namespace {

constexpr int64_t kVector = SkinnyMmaPlan::kVector, kLine = SkinnyMmaPlan::kLine;
constexpr int64_t kBlockLanes = 512, kUnrolled = 8;  // lanes; rounds that are unrolled
constexpr int64_t kFour = 4;
// Bits of f32: one step of its exponent; the sum of a number's exponent and its scale's, so that the greatest number
// becomes at least 2^14; the sum of an exponent and its inverse's.
constexpr int64_t kExponent = int64_t{1} << 23, kToF16 = 268 * kExponent, kToInverse = 254 * kExponent;
constexpr int64_t kLeastExponent = 15, kExponents = 255 * kExponent;

class RoundKernel {
 public:
  RoundKernel(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
              const RoundedScratch& s)
      : p_(p.only_a()), t_(t), m_(m), w_(g, p_, "round"), b_(w_.b) {
    lines_ = w_.scratch_param("lines", s.lines, t_.line_bytes(), true);
    if (s.sums >= 0) sums_ = w_.scratch_param("sums", s.sums, t_.sum_bytes(), true);
    if (s.scales >= 0) scales_ = w_.scratch_param("scales", s.scales, t_.rows * kFour, true);
    for (run_ = 1; run_ < t_.vectors() && !find_runs(run_); ++run_) {
    }
    if (run_ == t_.vectors()) find_runs(run_);
    aligned_ = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
    for (const DotIndex& i : p_.outer) aligned_ = aligned_ && i.strides[0] % 4 == 0;
    aligned_ = aligned_ && t_.order.unit % 4 == 0 && t_.order.lane_elements % 4 == 0 && near_ % 4 == 0 && far_ % 4 == 0;
  }

  Step write() {
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64(t_.rows), 1, [&](Expr row) { write_row(row); });
    return w_.step(fmt::format("round {}x{} to {} in units of {}", t_.rows, p_.k.extent, scalar_name(t_.factor.to),
                               t_.order.unit));
  }

 private:
  struct Item {
    Expr unit, run, lane_k;
  };
  bool find_runs(int64_t run);
  void write_row(Expr row);
  void each(int64_t all, const std::function<void(Expr)>& body);
  void find_scale(Expr lane);
  void write_item(Expr number, int64_t all);
  Expr load(Expr element, int64_t vector);
  // A number for each element of the vector that begins `first` elements after the item's start.
  Expr of_places(int64_t first, const std::function<double(int)>& number) {
    std::vector<double> out;
    for (int64_t i = first; i < first + kVector; ++i) out.push_back(number(t_.places[i]));
    return b_.lanes_real(out, Scalar::f32);
  }
  void put_sums(const Item& at, const std::vector<Expr>& rounded, Expr exists);

  DotProblem p_;
  const SkinnyMmaPlan& t_;
  const machine::Machine& m_;
  DotWriter w_;
  Builder& b_;
  BufferId lines_ = -1, sums_ = -1, scales_ = -1, most_ = -1;
  Expr row_, first_, scale_;  // row of scratch; its first element in memory; its scale
  int64_t run_ = 1;           // vectors of an item
  // Elements from an item to the next one of the unit: near_ within runs of near_together_ items, far_ from run to run.
  int64_t near_together_ = 1, near_ = 0, far_ = 0;
  bool aligned_ = true;
};

// Whether items of `run` vectors repeat the same pattern, within groups or over all of them. They are whole groups if
// groups are summed.
bool RoundKernel::find_runs(int64_t run) {
  for (size_t i = 0; i < t_.places.size(); ++i)
    if (t_.places[i] != t_.places[i % (run * kVector)]) return false;
  const std::vector<int64_t>& e = t_.order.elements;
  const int64_t step = run * kVector, count = e.size(), own = t_.order.of_group();
  if (count % step != 0 || (t_.sums_activations() && step % own != 0)) return false;
  for (const int64_t together : {int64_t{1}, own / step}) {
    if (together == 0 || count % (together * step) != 0) continue;
    const auto after = [&](int64_t i) { return i < count ? e[i] - e[0] : 0; };
    near_together_ = together;
    near_ = together > 1 ? after(step) : 0;
    far_ = after(together * step);
    bool follows = true;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = i / step;
      follows = follows && e[i] == e[i % step] + number % together * near_ + number / together * far_;
    }
    if (follows) return true;
  }
  return false;
}

// Eight elements in the order of the weight's, by loads of contiguous ones.
Expr RoundKernel::load(Expr element, int64_t vector) {
  const auto from = t_.order.elements.begin() + vector * kVector;
  const std::vector<int64_t> wanted(from, from + kVector);
  std::vector<int64_t> sorted = wanted;
  std::sort(sorted.begin(), sorted.end());
  Expr out = b_.real(0, {Scalar::f32, static_cast<int>(kVector)});
  const Expr at = first_ + element;
  for (size_t i = 0; i < sorted.size();) {
    size_t count = 1;
    while (count < 4 && i + count < sorted.size() && sorted[i + count] == sorted[i] + static_cast<int64_t>(count))
      ++count;
    if (count == 3 || sorted[i] % static_cast<int64_t>(count) != 0) count = 1;
    const int align = aligned_ ? static_cast<int>(4 * count) : 4;
    const Expr some = b_.load(w_.buffer(0), {Scalar::f32, static_cast<int>(count)}, (at + sorted[i]) * 4, align);
    for (size_t j = 0; j < count; ++j) {
      const auto lane = std::find(wanted.begin(), wanted.end(), sorted[i + j]) - wanted.begin();
      out = b_.insert(out, count == 1 ? some : b_.extract(some, j), lane);
    }
    i += count;
  }
  return out;
}

// Rows that do not exist repeat the last one.
void RoundKernel::write_row(Expr row) {
  row_ = row;
  Expr inside = row;
  if (t_.rows_anywhere) {
    w_.enter_outer_of_block(w_.i64(0));
  } else {
    w_.enter_outer_of_block(row / t_.columns);
    inside = row % t_.columns;
  }
  if (t_.rows_anywhere || t_.columns != p_.m.extent) inside = min(inside, b_.i64(p_.m.extent - 1));
  first_ = w_.base(0) + inside * p_.m.strides[0];
  const auto lanes = [&](const std::function<void(Expr)>& body) {
    b_.loop(LoopKind::lane, w_.i64(0), w_.i64(kBlockLanes), 1, body);
  };
  if (scales_ >= 0) {
    most_ = b_.alloc(kBlockLanes / m_.wave * kFour, 128, loop::Space::shared);
    lanes([&](Expr lane) {
      const BufferId most = b_.alloc(kFour);
      b_.store(most, b_.real(0, {Scalar::f32, 1}), w_.i64(0), kFour);
      const int64_t all = p_.k.extent / kFour;
      each(all, [&](Expr round) {
        const Expr four = min(round * kBlockLanes + lane, w_.i64(all - 1));
        const Expr x = b_.load(w_.buffer(0), {Scalar::f32, kFour}, (first_ + four * kFour) * 4, aligned_ ? 16 : 4);
        const Expr here = b_.fold(ScalarOp::max_, abs(x));
        b_.store(most, max(b_.load(most, {Scalar::f32, 1}, w_.i64(0), kFour), here), w_.i64(0), kFour);
      });
      const Expr of_wave = b_.fold_wave(ScalarOp::max_, b_.load(most, {Scalar::f32, 1}, w_.i64(0), kFour), m_.wave);
      b_.branch(lane % m_.wave == 0, [&] { b_.store(most_, of_wave, lane / m_.wave * kFour, kFour); });
    });
    b_.barrier();
  }
  lanes([&](Expr lane) {
    if (scales_ >= 0) find_scale(lane);
    const int64_t all = t_.units * (t_.vectors() / run_) * t_.lanes_k;
    each(all, [&](Expr round) { write_item(round * kBlockLanes + lane, all); });
  });
}

// As many rounds as a lane needs to take one item of each.
void RoundKernel::each(int64_t all, const std::function<void(Expr)>& body) {
  const int64_t rounds = (all + kBlockLanes - 1) / kBlockLanes;
  if (rounds > kUnrolled) return b_.loop(LoopKind::serial, w_.i64(0), w_.i64(rounds), 1, body);
  for (int64_t i = 0; i < rounds; ++i) body(w_.i64(i));
}

// The scale is a power of two.
void RoundKernel::find_scale(Expr lane) {
  const VType word{Scalar::u32, 1};
  const int waves = kBlockLanes / m_.wave;
  const Expr most = b_.fold(ScalarOp::max_, b_.load(most_, {Scalar::f32, waves}, w_.i64(0), 16));
  const Expr bits = bitcast(most, Scalar::u32);
  const Expr exponent = max(bits & kExponents, b_.integer(kLeastExponent * kExponent, word));
  const Expr scale = kToF16 - exponent;
  const Expr inverse = kToInverse - scale;
  scale_ = bitcast(scale, Scalar::f32);
  b_.branch(lane == 0, [&] { b_.store(scales_, bitcast(inverse, Scalar::f32), row_ * kFour, kFour); });
}

// Lanes without an item repeat the last one.
void RoundKernel::write_item(Expr number, int64_t all) {
  const Expr exists = all % kBlockLanes == 0 ? Expr{} : number < all;
  if (exists.exists()) number = min(number, b_.i64(all - 1));
  Item at;
  at.lane_k = number % t_.lanes_k;
  const Expr rest = number / t_.lanes_k;
  const int64_t runs = t_.vectors() / run_;
  at.run = rest % runs;
  at.unit = rest / runs;
  const Expr inside = at.run % near_together_ * near_ + at.run / near_together_ * far_;
  const Expr element = at.unit * t_.order.unit + (inside + at.lane_k * t_.order.lane_elements);
  std::vector<Expr> rounded;
  for (int64_t i = 0; i < run_; ++i) {
    Expr x = load(element, i);
    if (scale_.exists()) x = x * b_.splat(scale_, kVector);
    // Every item has the places of the unit's first item (find_runs).
    if (!t_.places.empty()) x = x * of_places(i * kVector, [](int place) { return std::ldexp(1.0, -place); });
    rounded.push_back(cast(x, t_.factor.to));
  }
  const auto write = [&] {
    const Expr vector = at.unit * t_.vectors() + at.run * run_;
    const Expr line = (vector * t_.rows + row_) * t_.lanes_k + at.lane_k;
    for (size_t i = 0; i < rounded.size(); ++i)
      b_.store(lines_, rounded[i], (line + static_cast<int64_t>(i) * t_.rows * t_.lanes_k) * kLine, kLine);
  };
  if (!exists.exists())
    write();
  else
    b_.branch(exists, write);
  if (sums_ >= 0) put_sums(at, rounded, exists);
}

// Sums of the rounded numbers, so that the correction cancels exactly the excess of the products.
void RoundKernel::put_sums(const Item& at, const std::vector<Expr>& rounded, Expr exists) {
  const int64_t own = t_.order.of_group(), groups = run_ * kVector / own;
  std::vector<Expr> wide, totals;
  for (const Expr x : rounded) {
    wide.push_back(cast(x, Scalar::f32));
    if (t_.places.empty()) continue;
    const auto zero_point = [&](int place) { return t_.factor.zero_point_at(place) / t_.factor.zero_point(); };
    wide.back() = wide.back() * of_places((wide.size() - 1) * kVector, zero_point);
  }
  for (int64_t g = 0; g < groups; ++g) {
    Expr total;
    for (int64_t first = g * own; first < (g + 1) * own; first += std::min(own, kVector)) {
      Expr some = wide[first / kVector];
      if (own < kVector) {
        std::vector<int> mask;
        for (int64_t i = 0; i < own; ++i) mask.push_back(first % kVector + i);
        some = b_.shuffle({some}, mask);
      }
      total = !total.exists() ? some : total + some;
    }
    total = b_.fold(ScalarOp::add_, total);
    for (int64_t apart = 1; apart < t_.lanes_k; apart *= 2)
      total = total + b_.wave_shuffle(total, b_.lane_id() ^ apart);
    totals.push_back(total * t_.sum_factor());
  }
  Expr leads = at.lane_k == 0;
  if (exists.exists()) leads = leads & exists;
  b_.branch(leads, [&] {
    const Expr group = at.unit * t_.groups() + at.run * groups;
    for (int64_t g = 0; g < groups; ++g) {
      const Expr place = (group + g) * t_.rows + row_;
      b_.store(sums_, totals[g], place * 4, 4);
    }
  });
}

}  // namespace

RoundedScratch declare_rounded(const SkinnyMmaPlan& t, Synthesis& out) {
  RoundedScratch s;
  s.lines = out.scratch.size();
  out.scratch.push_back(t.line_bytes());
  if (t.sums_activations()) {
    s.sums = out.scratch.size();
    out.scratch.push_back(t.sum_bytes());
  }
  if (t.scales_rows()) {
    s.scales = out.scratch.size();
    out.scratch.push_back(t.rows * kFour);
  }
  return s;
}

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const SkinnyMmaPlan& t, const machine::Machine& m,
                        const RoundedScratch& scratch) {
  return RoundKernel(g, p, t, m, scratch).write();
}

}  // namespace lumen::synth
