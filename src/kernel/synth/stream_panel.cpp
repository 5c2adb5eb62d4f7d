// See stream_panel.h.
#include "kernel/synth/stream_panel.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using loop::VType;
using Value = loop::ValueId;

namespace {

constexpr int64_t kLine = 16;  // bytes of a piece

}  // namespace

StreamPanel::StreamPanel(DotWriter& w, const DotProblem& p, const MatrixStreamPlan& t) : w_(w), b_(w.b), p_(p), t_(t) {
  panel_ = b_.alloc(2 * t_.panel_bytes(), 128, loop::Space::shared);
  if (t_.sums_activations()) sums_ = b_.alloc(2 * t_.panel_sum_bytes(), 128, loop::Space::shared);
  for (run_ = 1; run_ < pieces() && !find_runs(run_); ++run_) {
  }
  if (run_ == pieces()) find_runs(run_);
  aligned_ = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
  for (const DotIndex& i : p_.outer) aligned_ = aligned_ && i.strides[0] % 4 == 0;
  if (p_.pick)
    for (const DotIndex& i : p_.pick->rows) aligned_ = aligned_ && i.strides[0] % 4 == 0;
  aligned_ = aligned_ && t_.order.unit % 4 == 0 && t_.order.lane_elements % 4 == 0 && near_ % 4 == 0 && far_ % 4 == 0;
}

// Whether places follow a pattern after so many pieces: within groups, or over all of them. Whole groups, where they
// are summed.
bool StreamPanel::find_runs(int64_t run) {
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

StreamPanel::Place StreamPanel::place_of(Value number) {
  Place at{};
  const Value slot = rem(number, slots());
  at.lane_k = rem(slot, t_.lanes_k);
  at.column = div(slot, t_.lanes_k);
  Value rest = div(number, slots());
  const int64_t runs = pieces() / run_;
  at.run = rem(rest, runs);
  rest = div(rest, runs);
  at.tile = rem(rest, tiles());
  at.unit = div(rest, tiles());
  return at;
}

// Eight elements in the order of the weight's, by loads of those that lie beside each other.
Value StreamPanel::load(Value row, Value element, int64_t piece) {
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

// What does not exist reads what the last one has.
std::vector<StreamPanel::Item> StreamPanel::fetch(Value lane, Value stage) {
  const int64_t all = t_.stage_units() * tiles() * (pieces() / run_) * slots(), lanes = t_.lanes();
  std::vector<Item> items;
  for (int64_t first = 0; first < all; first += lanes) {
    Item item;
    item.number = b_.add(lane, b_.i64(first));
    if (first + lanes > all) {
      item.exists = b_.op(ScalarOp::lt_, item.number, b_.i64(all));
      item.number = w_.min(item.number, b_.i64(all - 1));
    }
    const Place at = place_of(item.number);
    Value row = b_.add(w_.scaled(at.tile, t_.row->n), at.column);
    if (t_.columns != p_.m.extent) row = w_.min(row, b_.i64(p_.m.extent - 1));
    Value unit = b_.add(w_.scaled(stage, t_.stage_units()), at.unit);
    if (t_.units % t_.stage_units() != 0) unit = w_.min(unit, b_.i64(t_.units - 1));
    const Value element = b_.add(w_.scaled(unit, t_.order.unit),
                                 b_.add(run_element(at.run), w_.scaled(at.lane_k, t_.order.lane_elements)));
    for (int64_t i = 0; i < run_; ++i) item.pieces.push_back(load(row, element, i));
    items.push_back(std::move(item));
  }
  return items;
}

void StreamPanel::put(const std::vector<Item>& items, Value number) {
  for (const Item& item : items) {
    const Place at = place_of(item.number);
    std::vector<Value> rounded;
    for (const Value x : item.pieces) rounded.push_back(b_.convert(ScalarOp::cast_, t_.factor.to, x));
    const auto write = [&] {
      // Numbers of items count lines, but for what an item has.
      Value line = b_.add(w_.scaled(at.unit, tiles()), at.tile);
      line = b_.add(w_.scaled(line, pieces()), w_.scaled(at.run, run_));
      line = b_.add(w_.scaled(line, slots()), b_.add(w_.scaled(at.column, t_.lanes_k), at.lane_k));
      const Value byte = b_.add(w_.scaled(number, t_.panel_bytes()), w_.scaled(line, kLine));
      for (size_t i = 0; i < rounded.size(); ++i)
        b_.store(panel_, rounded[i], b_.add(byte, b_.i64(static_cast<int64_t>(i) * slots() * kLine)), kLine);
    };
    if (item.exists < 0)
      write();
    else
      b_.branch(item.exists, write);
    if (t_.sums_activations()) put_sums(item, at, rounded, number);
  }
}

// Of what was rounded, so that what products with it have too much is what is taken off.
void StreamPanel::put_sums(const Item& item, const Place& at, const std::vector<Value>& rounded, Value number) {
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
  if (item.exists >= 0) leads = b_.op(ScalarOp::and_, leads, item.exists);
  b_.branch(leads, [&] {
    const Value group = b_.add(w_.scaled(at.unit, t_.groups()), w_.scaled(at.run, groups));
    const Value column = b_.add(w_.scaled(at.tile, t_.row->n), at.column);
    // As lanes hold them: neighbours that a lane has, as often as it has rows of them.
    const int64_t copies = t_.sum_copies(), beside = t_.sums_beside();
    Value place = w_.scaled(column, copies);
    if (copies > 1) place = b_.add(w_.scaled(div(column, beside), beside * copies), rem(column, beside));
    const Value byte =
        b_.add(w_.scaled(number, t_.panel_sum_bytes()), w_.scaled(b_.add(w_.scaled(group, sum_line()), place), 4));
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t copy = 0; copy < copies; ++copy)
        b_.store(sums_, totals[static_cast<size_t>(g)], b_.add(byte, b_.i64((g * sum_line() + copy * beside) * 4)), 4);
  });
}

Value StreamPanel::piece(Value number, Value unit, int tile, int64_t piece, Value column, Value lane_k) {
  const Value slot = b_.add(w_.scaled(column, t_.lanes_k), lane_k);
  Value byte = b_.add(w_.scaled(number, t_.panel_bytes()), w_.scaled(unit, tiles() * pieces() * slots() * kLine));
  byte = b_.add(byte, w_.scaled(slot, kLine));
  return b_.load(panel_, {t_.factor.to, static_cast<int>(kPiece)},
                 b_.add(byte, b_.i64((tile * pieces() + piece) * slots() * kLine)), kLine);
}

Value StreamPanel::sums(Value number, Value unit, int64_t group, int tile, Value column) {
  const int64_t copies = t_.sum_copies();
  Value byte = b_.add(w_.scaled(number, t_.panel_sum_bytes()), w_.scaled(unit, t_.groups() * sum_line() * 4));
  byte = b_.add(byte, w_.scaled(column, 4 * copies));
  const auto lanes = static_cast<int>(t_.sums_beside() * copies);
  return b_.load(sums_, {Scalar::f32, lanes},
                 b_.add(byte, b_.i64((group * sum_line() + tile * t_.row->n * copies) * 4)), 4 * lanes);
}

}  // namespace lumen::synth
