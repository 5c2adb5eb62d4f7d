// Common parts of attend kernels: see attend.h. Proved by tests/kernel/synth/attention/synth_attend_test.cpp.
#include <limits>
#include <numeric>

#include "kernel/synth/attention/attend.h"

namespace lumen::synth {

namespace {

// One side of a comparison with the key's number, at key 0.
Expr at_first_key(Builder& b, Body& map, const KeyRange::Side& side) {
  std::vector<Expr> inputs;
  for (size_t i = 0; i < side.operands.size(); ++i) {
    const VType type{side.formula.inputs[i], 1};
    inputs.push_back(side.operands[i] >= 0   ? map.value(side.operands[i])
                     : is_float(type.scalar) ? b.real(0, type)
                                             : b.integer(0, type));
  }
  return cast(b.apply(side.formula, inputs)[0], Scalar::i64);
}

}  // namespace

std::pair<Expr, Expr> keys_of_row(Builder& b, Body& map, const KeyRange& range) {
  const auto [first, end] = keys_shown_to_row(b, map, range);
  if (!range.is_bounded()) return {first, end};
  const Expr sees = first < end;
  return {select(sees, first, b.i64(0)), select(sees, end, b.i64(range.keys()))};
}

std::pair<Expr, Expr> keys_shown_to_row(Builder& b, Body& map, const KeyRange& range) {
  const Expr none = b.i64(0), all = b.i64(range.keys());
  Expr first = none, end = all;
  map.open_lanes(none, 1, {});
  for (const KeyRange::Term& t : range.terms()) {
    // left - right = base + slope * key  against 0
    const Expr base = at_first_key(b, map, range.side(t.left)) - at_first_key(b, map, range.side(t.right));
    const Expr crossing = t.slope > 0 ? none - base : base;  // the key where it is 0
    const bool with = t.op == ScalarOp::le_;
    if (t.slope > 0) {
      end = min(end, with ? crossing + 1 : crossing);
    } else {
      first = max(first, with ? crossing : crossing + 1);
    }
  }
  map.close();
  return {first, end};
}

int AttendWriter::axis_of(const Body& body, size_t d) {
  for (size_t k = 0; k < body.extents().size(); ++k)
    if (body.first_axis(k) == static_cast<int>(d)) return k;
  return -1;
}

int AttendWriter::open_axis(Body& body, size_t d, Expr counter) {
  const int axis = axis_of(body, d);
  if (axis >= 0) body.open(axis, counter);
  return axis >= 0 ? 1 : 0;
}

void AttendWriter::close(Body& body, int opened) {
  for (int d = 0; d < opened; ++d) body.close();
}

Expr AttendWriter::existing(Body& body, Expr x) {
  if (!body.count().exists()) return x;
  const int lanes = b_.type(x).lanes;
  std::vector<int64_t> numbers(lanes);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Expr exist = b_.lanes_integer(numbers, Scalar::i64) < b_.splat(body.count(), lanes);
  return select(exist, x, b_.real(0, {Scalar::f32, lanes}));
}

std::vector<int64_t> AttendWriter::declare_results(const graph::Group& group, const Attention& attention,
                                                   int64_t parts) {
  if (parts == 1) {
    for (const graph::ValueId r : group.results) builder_.value(r, true);
    return {};
  }
  const int64_t rows = product(attention.row_extents());
  std::vector<int64_t> bytes{parts * rows * attention.width * 4, parts * rows * 8};
  partial_ = builder_.scratch(0, bytes[0], true);
  extremes_ = builder_.scratch(1, bytes[1], true);
  return bytes;
}

Expr AttendWriter::key_in_table(Body& body, const Attention::Found& found) {
  body.open_scalar();
  const Expr at = cast(body.value(found.index), Scalar::i64);
  body.close();
  b_.guard((0 <= at) & (at < found.count), at, loop::kGuardIndex);
  return max(b_.i64(0), min(at, b_.i64(found.count - 1)));
}

void AttendWriter::keep_extremes(Expr row, Expr top, Expr total) {
  b_.store(extremes_, top, bytes(row, 2), 4);
  b_.store(extremes_, total, bytes(row, 2) + 4, 4);
}

void AttendWriter::keep_no_keys(Expr row) {
  const VType one{Scalar::f32, 1};
  keep_extremes(row, b_.real(std::numeric_limits<float>::lowest(), one), b_.real(0, one));
}

void AttendWriter::each_number(int64_t width, bool dense,
                               const std::function<void(Expr at, int lanes, Expr count)>& body) {
  if (!dense) {
    serial(b_.i64(0), b_.i64(width), 1, [&](Expr at) { body(at, 1, {}); });
    return;
  }
  const int64_t whole = width / lanes_ * lanes_;
  if (whole > 0) serial(b_.i64(0), b_.i64(whole), lanes_, [&](Expr at) { body(at, lanes_, {}); });
  if (whole < width) body(b_.i64(whole), lanes_, b_.i64(width - whole));
}

}  // namespace lumen::synth
