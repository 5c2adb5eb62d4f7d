// See stream_activations.h. A lane takes `share` elements at a time; the lanes of a group find its scale together.
#include "kernel/synth/gemm/skinny/stream_activations.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using loop::LoopKind;
using loop::VType;
using Value = loop::ValueId;

namespace {

constexpr int64_t kLine = 16;  // bytes that lie together
constexpr int64_t kFour = 4;
constexpr int64_t kElementsTogether = 32;  // of a lane
constexpr double kLeast = 1e-30;           // numbers of groups without a larger one become zero
constexpr double kRound = 12582912;  // 1.5 * 2^23: added to it, small numbers are rounded to integers, in the low bits

}  // namespace

StreamActivations::StreamActivations(DotWriter& w, const DotProblem& p, const StreamPlan& t, const machine::Machine& m)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m) {
  codes_ = b_.alloc(p_.m.extent * code_bytes(), 128, loop::Space::shared);
  if (!t_.integers) return;
  sums_ = t_.bias() != 0 || t_.integers->form.offset.has_value();
  numbers_ = b_.alloc(p_.m.extent * number_bytes(), 128, loop::Space::shared);
  // Runs repeat after `share` elements: those of the first say where each element's code goes.
  for (int64_t first = 0; first < t_.share; first += 4) runs_.emplace_back();
  size_t found = 0;
  for (const std::vector<int64_t>& vector : t_.order.vectors)
    for (size_t i = 0; i < vector.size(); i += 4)
      if (vector[i] < t_.share) {
        LUMEN_CHECK(found < runs_.size(), "more runs than a share has");
        runs_[found++].assign(vector.begin() + static_cast<std::ptrdiff_t>(i),
                              vector.begin() + static_cast<std::ptrdiff_t>(i) + 4);
      }
  LUMEN_CHECK(found == runs_.size(), "a share of {} elements in {} runs", t_.share, found);
  own_ = find_bits() ? kFour : t_.share;
}

int64_t StreamActivations::place_of(int64_t element) const {
  for (size_t r = 0; r < runs_.size(); ++r)
    for (size_t i = 0; i < runs_[r].size(); ++i)
      if (runs_[r][i] == element) return static_cast<int64_t>(r * runs_[r].size() + i);
  LUMEN_UNREACHABLE("no place for element {}", element);
}

// Whether every bit of an element's number is one of its place's.
bool StreamActivations::find_bits() {
  if ((t_.share & (t_.share - 1)) != 0) return false;
  for (int64_t e = 0; e < t_.share; ++e) {
    int64_t place = 0;
    for (int64_t bit = 1; bit < t_.share; bit *= 2)
      if (e & bit) place |= place_of(bit);
    if (place != place_of(e)) return false;
  }
  return true;
}

// Several rounds together, so that none waits for what another loads.
void StreamActivations::fill(Value lane, const std::function<void()>& meanwhile) {
  const int64_t share = t_.integers ? own_ : kFour, all = p_.m.extent * p_.k.extent / share, lanes = t_.lanes(m_.wave);
  const int64_t rounds = (all + lanes - 1) / lanes, together = std::max<int64_t>(1, kElementsTogether / share);
  const auto some = [&](Value first, int64_t count, const std::function<void()>& behind_loads) {
    std::vector<Item> items;
    for (int64_t i = 0; i < count; ++i) {
      Item item;
      item.number = b_.add(lane, w_.scaled(b_.add(first, b_.i64(i)), lanes));
      if (all % lanes != 0) {
        item.exists = b_.op(ScalarOp::lt_, item.number, b_.i64(all));
        item.number = w_.min(item.number, b_.i64(all - 1));
      }
      const int64_t per_row = p_.k.extent / share;
      item.row = p_.m.extent == 1 ? b_.i64(0) : div(item.number, per_row);
      item.element = w_.scaled(p_.m.extent == 1 ? item.number : rem(item.number, per_row), share);
      items.push_back(std::move(item));
    }
    for (Item& item : items) item.x = load(item.row, item.element, share);
    if (behind_loads) behind_loads();
    if (t_.integers)
      quantize(items);
    else
      copy(items);
  };
  const int64_t begun = std::min(together, rounds), whole = begun + (rounds - begun) / together * together;
  some(b_.i64(0), begun, meanwhile);
  b_.loop(LoopKind::serial, b_.i64(begun), b_.i64(whole), together, [&](Value first) { some(first, together, {}); });
  if (whole < rounds) some(b_.i64(whole), rounds - whole, {});
}

void StreamActivations::where_exists(const Item& item, const std::function<void()>& body) {
  if (item.exists < 0)
    body();
  else
    b_.branch(item.exists, body);
}

std::vector<Value> StreamActivations::load(Value row, Value element, int64_t count) {
  bool whole = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
  for (const DotIndex& i : p_.outer) whole = whole && i.strides[0] % 4 == 0;
  if (p_.pick)
    for (const DotIndex& i : p_.pick->rows) whole = whole && i.strides[0] % 4 == 0;
  std::vector<Value> out;
  const Value at = b_.add(w_.base(0), b_.add(w_.scaled(row, p_.m.strides[0]), element));
  for (int64_t i = 0; i < count; i += 4)
    out.push_back(b_.load(w_.buffer(0), {Scalar::f32, 4}, w_.scaled(b_.add(at, b_.i64(i)), 4), whole ? 16 : 4));
  return out;
}

void StreamActivations::copy(const std::vector<Item>& items) {
  for (const Item& item : items) {
    const Value unit = div(item.element, t_.unit), quad = div(rem(item.element, t_.unit), 4);
    Value at = b_.add(w_.scaled(div(unit, t_.columns), t_.unit / 4), quad);
    at = b_.add(w_.scaled(at, t_.columns), rem(unit, t_.columns));
    at = b_.add(w_.scaled(item.row, code_bytes()), w_.scaled(at, kLine));
    where_exists(item, [&] { b_.store(codes_, item.x[0], at, kLine); });
  }
}

// Step by step for all items, whose chains of operations then run beside each other.
void StreamActivations::quantize(std::vector<Item>& items) {
  const int64_t share = own_, fine = t_.integers->fine;
  const VType one{Scalar::f32, 1}, four{Scalar::f32, 4};
  const Value own = b_.lane_id();
  constexpr const char* kGreatest = "greatest.f32";
  b_.use_fast_math({m_.power2, m_.reciprocal, m_.find_row(kGreatest) ? kGreatest : ""});
  const auto neighbours = [&](Value Item::* of, int64_t elements, const auto& join) {
    for (int64_t apart = 1; apart * share < elements; apart *= 2)
      for (Item& item : items)
        item.*of = join(item.*of, b_.exchange(item.*of, b_.op(ScalarOp::xor_, own, b_.i64(apart))));
  };
  for (Item& item : items) {
    for (const Value v : item.x) {
      const Value size = b_.op(ScalarOp::abs_, v);
      item.most = item.most < 0 ? size : b_.op(ScalarOp::max_, item.most, size);
    }
    item.most = b_.fold(ScalarOp::max_, item.most);
  }
  neighbours(&Item::most, kActivationGroup, [&](Value v, Value y) { return b_.op(ScalarOp::max_, v, y); });
  const Value zero = b_.real(0, one), full = b_.real(127, one), least = b_.real(kLeast, one);
  for (Item& item : items) {
    const Value inverse =
        b_.op(ScalarOp::select_, b_.op(ScalarOp::lt_, least, item.most), b_.op(ScalarOp::div_, full, item.most), zero);
    item.scale = b_.mul(item.most, b_.real(1.0 / 127, one));
    for (const Value v : item.x) {
      const Value rounded = b_.op(ScalarOp::fma_, v, b_.splat(inverse, 4), b_.real(kRound, four));
      const Value bits = b_.convert(ScalarOp::bitcast_, Scalar::u32, rounded);
      item.codes.push_back(b_.convert(ScalarOp::bitcast_, Scalar::i8, b_.convert(ScalarOp::cast_, Scalar::u8, bits)));
    }
  }
  if (sums_) {
    const machine::DotRow& dot = t_.integers->row;
    const std::string name = fmt::format("dot4.{}i8.i32", scalar_name(dot.a));
    for (Item& item : items) {
      item.total = b_.integer(0, {Scalar::i32, 1});
      for (const Value c : item.codes)
        item.total = b_.inst(name, {Scalar::i32, 1}, {item.total, b_.integer(1, {dot.a, 4}), c});
    }
    neighbours(&Item::total, fine, [&](Value v, Value y) { return b_.add(v, y); });
    const double factor = t_.integers->form.offset ? 1 : t_.bias();
    for (Item& item : items) {
      item.total = b_.mul(item.scale, b_.convert(ScalarOp::cast_, Scalar::f32, item.total));
      item.total = b_.mul(item.total, b_.real(factor, one));
    }
  }
  for (Item& item : items) item.scale = b_.mul(item.scale, b_.real(t_.step(), one));
  b_.use_fast_math({});
  for (const Item& item : items) where_exists(item, [&] { put(item); });
}

// Each to its place: bits of the first one's number that are not zero, and what those beside it have more.
void StreamActivations::put_bytes(const Item& item, Value unit_line, Value within) {
  const Value inside = rem(within, t_.share), base = b_.op(ScalarOp::sub_, within, inside);
  Value place = base;
  for (int64_t bit = own_; bit < t_.share; bit *= 2) {
    const Value set = b_.op(ScalarOp::and_, div(inside, bit), b_.i64(1));
    place = b_.add(place, w_.scaled(set, place_of(bit)));
  }
  for (int64_t i = 0; i < own_; ++i) {
    const Value at = b_.add(place, b_.i64(place_of(i)));
    const Value line = b_.add(unit_line, w_.scaled(div(at, kLine), t_.columns));
    const Value byte = b_.add(w_.scaled(item.row, code_bytes()), b_.add(w_.scaled(line, kLine), rem(at, kLine)));
    b_.store(codes_, b_.extract(item.codes[0], static_cast<int>(i)), byte, 1);
  }
}

void StreamActivations::put(const Item& item) {
  const int64_t share = own_, fine = t_.integers->fine;
  const Value unit = div(item.element, t_.unit), within = rem(item.element, t_.unit);
  const Value block = w_.scaled(div(unit, t_.columns), t_.columns), column = rem(unit, t_.columns);
  // Sixteen elements of a unit, then those of the next column.
  if (own_ < t_.share) {
    put_bytes(item, b_.add(w_.scaled(block, t_.unit / kLine), column), within);
  } else {
    Value line = b_.add(w_.scaled(block, t_.unit / kLine), w_.scaled(div(within, kLine), t_.columns));
    line = b_.add(line, column);
    const Value at = b_.add(b_.add(w_.scaled(item.row, code_bytes()), w_.scaled(line, kLine)), rem(within, kLine));
    for (int64_t first = 0; first < share; first += 4) {
      const std::vector<int64_t>& run = runs_[static_cast<size_t>(first / 4)];
      Value code = b_.integer(0, {Scalar::i8, 4});
      bool as_it_is = true;
      for (int i = 0; i < 4; ++i) as_it_is = as_it_is && run[static_cast<size_t>(i)] == first + i;
      if (as_it_is)
        code = item.codes[static_cast<size_t>(first / 4)];
      else
        for (int i = 0; i < 4; ++i) {
          const int64_t e = run[static_cast<size_t>(i)];
          code = b_.insert(code, b_.extract(item.codes[static_cast<size_t>(e / 4)], static_cast<int>(e % 4)), i);
        }
      // Shares longer than a line go on in the next.
      b_.store(codes_, code, b_.add(at, b_.i64(first / kLine * kLine * t_.columns + first % kLine)), 4);
    }
  }
  b_.branch(b_.op(ScalarOp::eq_, rem(within, fine), b_.i64(0)), [&] {
    const Value group = b_.add(b_.add(w_.scaled(block, groups()), w_.scaled(div(within, fine), t_.columns)), column);
    const Value place = b_.add(w_.scaled(item.row, number_bytes()), w_.scaled(group, each_number()));
    const Value both = sums_ ? b_.insert(b_.splat(item.scale, 2), item.total, 1) : item.scale;
    b_.store(numbers_, both, place, static_cast<int>(each_number()));
  });
}

StreamActivations::Place StreamActivations::place(int row, Value group, Value column) {
  Place out;
  const int64_t bytes = t_.integers ? 1 : 4;
  out.codes = b_.add(b_.i64(row * code_bytes()),
                     b_.add(w_.scaled(group, t_.columns * t_.unit * bytes), w_.scaled(column, kLine)));
  if (t_.integers)
    out.numbers = b_.add(b_.i64(row * number_bytes()), b_.add(w_.scaled(group, t_.columns * groups() * each_number()),
                                                              w_.scaled(column, each_number())));
  return out;
}

Value StreamActivations::quad(const Place& at, int64_t number) {
  return b_.load(codes_, {Scalar::f32, 4}, b_.add(at.codes, b_.i64(number * kLine * t_.columns)), kLine);
}

Value StreamActivations::word(const Place& at, const std::vector<int64_t>& elements) {
  // The run that holds these elements, in the share they lie in.
  const int64_t base = elements[0] / t_.share * t_.share;
  int64_t place = -1;
  for (size_t r = 0; r < runs_.size(); ++r)
    if (runs_[r][0] == elements[0] - base) place = base + static_cast<int64_t>(r) * 4;
  LUMEN_CHECK(place >= 0, "no run begins at element {}", elements[0]);
  const Value line =
      b_.load(codes_, {Scalar::i8, 16}, b_.add(at.codes, b_.i64(place / kLine * kLine * t_.columns)), kLine);
  const int first = static_cast<int>(place % kLine);
  return b_.shuffle({line}, {first, first + 1, first + 2, first + 3});
}

StreamActivations::Numbers StreamActivations::numbers(const Place& at, int64_t group) {
  const int both = sums_ ? 2 : 1;
  const Value x =
      b_.load(numbers_, {Scalar::f32, both}, b_.add(at.numbers, b_.i64(group * t_.columns * each_number())), 4 * both);
  return {sums_ ? b_.extract(x, 0) : x, sums_ ? b_.extract(x, 1) : -1};
}

}  // namespace lumen::synth
