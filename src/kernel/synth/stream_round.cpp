// See stream_round.h. An item is a run of pieces of one row that one lane has: whole groups, where they are summed.
#include "kernel/synth/stream_round.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernel/synth/dot_write.h"

namespace lumen::synth {
namespace {

using loop::LoopKind;
using Value = loop::ValueId;

constexpr int64_t kPiece = MatrixStreamPlan::kPiece, kLine = MatrixStreamPlan::kLine;
constexpr int64_t kBlockLanes = 128;

class RoundKernel {
 public:
  RoundKernel(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t, const RoundedScratch& s)
      : p_(p.only_a()), t_(t), w_(g, p_, "round"), b_(w_.b) {
    lines_ = w_.scratch_param("lines", s.lines, t_.line_bytes(), true);
    if (s.sums >= 0) sums_ = w_.scratch_param("sums", s.sums, t_.sum_bytes(), true);
    for (run_ = 1; run_ < t_.pieces() && !find_runs(run_); ++run_) {
    }
    if (run_ == t_.pieces()) find_runs(run_);
    aligned_ = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
    for (const DotIndex& i : p_.outer) aligned_ = aligned_ && i.strides[0] % 4 == 0;
    aligned_ = aligned_ && t_.order.unit % 4 == 0 && t_.order.lane_elements % 4 == 0 && near_ % 4 == 0 && far_ % 4 == 0;
  }

  Step write() {
    const int64_t all = t_.units * (t_.pieces() / run_) * t_.rows * t_.lanes_k;
    b_.loop(LoopKind::grid, w_.i64(0), w_.i64((all + kBlockLanes - 1) / kBlockLanes), 1, [&](Value block) {
      b_.loop(LoopKind::lane, w_.i64(0), w_.i64(kBlockLanes), 1,
              [&](Value lane) { write_item(w_.add(w_.scaled(block, kBlockLanes), lane), all); });
    });
    return w_.step(fmt::format("round {}x{} to {} in units of {}", t_.rows, p_.k.extent, scalar_name(t_.factor.to),
                               t_.order.unit));
  }

 private:
  // Rows and lanes of K of a run lie beside each other.
  struct Item {
    Value unit = -1, run = -1, row = -1, lane_k = -1;
  };
  bool find_runs(int64_t run);
  void write_item(Value number, int64_t all);
  Value load(Value row, Value element, int64_t piece);
  void put_sums(const Item& at, const std::vector<Value>& rounded, Value exists);
  Value rem(Value x, int64_t y) { return b_.op(ScalarOp::rem_, x, b_.i64(y)); }
  Value div(Value x, int64_t y) { return b_.op(ScalarOp::div_, x, b_.i64(y)); }

  DotProblem p_;
  const MatrixStreamPlan& t_;
  DotWriter w_;
  loop::Builder& b_;
  loop::BufferId lines_ = -1, sums_ = -1;
  int64_t run_ = 1;  // pieces of an item
  // Elements from an item's to the next one's of the unit: so many of them follow each other, then those behind them.
  int64_t near_together_ = 1, near_ = 0, far_ = 0;
  bool aligned_ = true;
};

// Whether places follow a pattern after so many pieces: within groups, or over all of them. Whole groups, where they
// are summed.
bool RoundKernel::find_runs(int64_t run) {
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
Value RoundKernel::load(Value row, Value element, int64_t piece) {
  const auto from = t_.order.elements.begin() + static_cast<std::ptrdiff_t>(piece * kPiece);
  const std::vector<int64_t> wanted(from, from + kPiece);
  std::vector<int64_t> sorted = wanted;
  std::sort(sorted.begin(), sorted.end());
  Value out = b_.real(0, {Scalar::f32, static_cast<int>(kPiece)});
  const Value at = b_.add(w_.base(0), b_.add(w_.scaled(row, p_.m.strides[0]), element));
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

// Rows that do not exist are what the last one is; lanes that have no item repeat the last.
void RoundKernel::write_item(Value number, int64_t all) {
  const Value exists = all % kBlockLanes == 0 ? -1 : b_.op(ScalarOp::lt_, number, b_.i64(all));
  if (exists >= 0) number = w_.min(number, b_.i64(all - 1));
  Item at;
  at.lane_k = rem(number, t_.lanes_k);
  Value rest = div(number, t_.lanes_k);
  at.row = rem(rest, t_.rows);
  rest = div(rest, t_.rows);
  const int64_t runs = t_.pieces() / run_;
  at.run = rem(rest, runs);
  at.unit = div(rest, runs);
  Value row = at.row;
  if (t_.rows_anywhere) {
    w_.enter_outer(w_.i64(0));
  } else {
    w_.enter_outer(div(row, t_.columns));
    row = rem(row, t_.columns);
  }
  if (t_.rows_anywhere || t_.columns != p_.m.extent) row = w_.min(row, b_.i64(p_.m.extent - 1));
  const Value inside =
      b_.add(w_.scaled(rem(at.run, near_together_), near_), w_.scaled(div(at.run, near_together_), far_));
  const Value element =
      b_.add(w_.scaled(at.unit, t_.order.unit), b_.add(inside, w_.scaled(at.lane_k, t_.order.lane_elements)));
  std::vector<Value> rounded;
  for (int64_t i = 0; i < run_; ++i)
    rounded.push_back(b_.convert(ScalarOp::cast_, t_.factor.to, load(row, element, i)));
  const auto write = [&] {
    const Value piece = w_.add(w_.scaled(at.unit, t_.pieces()), w_.scaled(at.run, run_));
    const Value line = w_.add(w_.scaled(w_.add(w_.scaled(piece, t_.rows), at.row), t_.lanes_k), at.lane_k);
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

// Of what was rounded, so that what products with it have too much is what is taken off.
void RoundKernel::put_sums(const Item& at, const std::vector<Value>& rounded, Value exists) {
  const int64_t own = t_.order.of_group(), groups = run_ * kPiece / own;
  std::vector<Value> wide, totals;
  for (const Value x : rounded) wide.push_back(b_.convert(ScalarOp::cast_, Scalar::f32, x));
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
      const Value place = w_.add(w_.scaled(w_.add(group, b_.i64(g)), t_.rows), at.row);
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
  return s;
}

Step write_round_kernel(const graph::Graph& g, const DotProblem& p, const MatrixStreamPlan& t,
                        const RoundedScratch& scratch) {
  return RoundKernel(g, p, t, scratch).write();
}

}  // namespace lumen::synth
