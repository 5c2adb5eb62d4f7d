// See skinny_activations.h. A lane takes `share` elements at a time; the lanes of a group find its scale together.
#include "kernel/synth/gemm/skinny/skinny_activations.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

namespace {

constexpr int64_t kLine = 16;  // contiguous bytes
constexpr int64_t kFour = 4;
constexpr int64_t kElementsTogether = 32;  // of a lane, loaded together
constexpr double kLeast = 1e-30;           // groups without a larger number become zero
constexpr double kRound = 12582912;        // 1.5 * 2^23: adding it rounds small numbers to integers, in the low bits

}  // namespace

SkinnyActivations::SkinnyActivations(DotWriter& w, const DotProblem& p, const SkinnyDotPlan& t,
                                     const machine::Machine& m)
    : w_(w), b_(w.b), p_(p), t_(t), m_(m) {
  codes_ = b_.alloc(p_.m.extent * code_bytes(), 128, loop::Space::shared);
  if (!t_.integers) return;
  sums_ = t_.bias() != 0 || t_.integers->form.offset.has_value();
  numbers_ = b_.alloc(p_.m.extent * number_bytes(), 128, loop::Space::shared);
  // Runs repeat after `share` elements: the first ones determine where each element's code goes.
  for (int64_t first = 0; first < t_.share; first += 4) runs_.emplace_back();
  size_t found = 0;
  for (const std::vector<int64_t>& vector : t_.order.vectors)
    for (size_t i = 0; i < vector.size(); i += 4)
      if (vector[i] < t_.share) {
        LUMEN_CHECK(found < runs_.size(), "more runs than a share has");
        runs_[found++].assign(vector.begin() + i, vector.begin() + i + 4);
      }
  LUMEN_CHECK(found == runs_.size(), "a share of {} elements in {} runs", t_.share, found);
  bool natural = true;
  for (int64_t e = 0; e < t_.share; ++e) natural = natural && place_of(e) == e;
  own_ = !natural && find_bits() ? kFour : t_.share;
  // The elements of a run are as far apart as there are runs: a lane takes one run, a word of codes.
  apart_ = own_ < t_.share ? t_.share / kFour : 1;
  for (int64_t r = 0; r < std::ssize(runs_); ++r)
    for (int64_t i = 0; i < std::ssize(runs_[r]); ++i)
      if (runs_[r][i] != r + i * std::ssize(runs_)) apart_ = 1;
}

int64_t SkinnyActivations::place_of(int64_t element) const {
  for (size_t r = 0; r < runs_.size(); ++r)
    for (size_t i = 0; i < runs_[r].size(); ++i)
      if (runs_[r][i] == element) return r * runs_[r].size() + i;
  LUMEN_UNREACHABLE("no place for element {}", element);
}

// Whether every bit of an element's number becomes one bit of its place.
bool SkinnyActivations::find_bits() {
  if ((t_.share & (t_.share - 1)) != 0) return false;
  for (int64_t e = 0; e < t_.share; ++e) {
    int64_t place = 0;
    for (int64_t bit = 1; bit < t_.share; bit *= 2)
      if (e & bit) place |= place_of(bit);
    if (place != place_of(e)) return false;
  }
  return true;
}

// Several rounds at once, so that none waits for the loads of another.
void SkinnyActivations::fill(Expr lane, const std::function<void()>& meanwhile) {
  const int64_t share = t_.integers ? own_ : kFour, all = p_.m.extent * p_.k.extent / share, lanes = t_.lanes(m_.wave);
  const int64_t rounds = (all + lanes - 1) / lanes, together = std::max<int64_t>(1, kElementsTogether / share);
  const auto some = [&](Expr first, int64_t count, const std::function<void()>& behind_loads) {
    std::vector<Item> items;
    for (int64_t i = 0; i < count; ++i) {
      Item item;
      item.number = lane + (first + i) * lanes;
      if (all % lanes != 0) {
        item.exists = item.number < all;
        item.number = min(item.number, b_.i64(all - 1));
      }
      const int64_t per_row = p_.k.extent / share;
      item.row = p_.m.extent == 1 ? b_.i64(0) : item.number / per_row;
      const Expr own = p_.m.extent == 1 ? item.number : item.number % per_row;
      item.element = apart_ > 1 ? own / apart_ * t_.share + own % apart_ : own * share;
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
  b_.loop(LoopKind::serial, b_.i64(begun), b_.i64(whole), together, [&](Expr first) { some(first, together, {}); });
  if (whole < rounds) some(b_.i64(whole), rounds - whole, {});
}

void SkinnyActivations::where_exists(const Item& item, const std::function<void()>& body) {
  if (!item.exists.exists())
    body();
  else
    b_.branch(item.exists, body);
}

std::vector<Expr> SkinnyActivations::load(Expr row, Expr element, int64_t count) {
  bool whole = p_.loads[0].offset % 4 == 0 && p_.m.strides[0] % 4 == 0;
  for (const DotIndex& i : p_.outer) whole = whole && i.strides[0] % 4 == 0;
  if (p_.pick)
    for (const DotIndex& i : p_.pick->rows) whole = whole && i.strides[0] % 4 == 0;
  std::vector<Expr> out;
  const Expr at = w_.base(0) + (row * p_.m.strides[0] + element);
  if (apart_ > 1) {
    out.push_back(
        b_.join(kFour, [&](int i) { return b_.load(w_.buffer(0), {Scalar::f32, 1}, (at + i * apart_) * 4, 4); }));
    return out;
  }
  for (int64_t i = 0; i < count; i += 4)
    out.push_back(b_.load(w_.buffer(0), {Scalar::f32, 4}, (at + i) * 4, whole ? 16 : 4));
  return out;
}

void SkinnyActivations::copy(const std::vector<Item>& items) {
  for (const Item& item : items) {
    const Expr unit = item.element / t_.unit, quad = item.element % t_.unit / 4;
    Expr at = unit / t_.columns * (t_.unit / 4) + quad;
    at = at * t_.columns + unit % t_.columns;
    at = item.row * code_bytes() + at * kLine;
    where_exists(item, [&] { b_.store(codes_, item.x[0], at, kLine); });
  }
}

// Step by step for all items, so that their dependent chains overlap.
void SkinnyActivations::quantize(std::vector<Item>& items) {
  const int64_t share = own_, fine = t_.integers->fine;
  const VType one{Scalar::f32, 1}, four{Scalar::f32, 4};
  const Expr own = b_.lane_id();
  constexpr const char* kGreatest = "greatest.f32";
  b_.use_fast_math({m_.power2, m_.reciprocal, m_.find_row(kGreatest) ? kGreatest : ""});
  const auto neighbours = [&](Expr Item::* of, int64_t elements, const auto& join) {
    for (int64_t apart = 1; apart * share < elements; apart *= 2)
      for (Item& item : items) item.*of = join(item.*of, b_.wave_shuffle(item.*of, own ^ apart));
  };
  for (Item& item : items) {
    for (const Expr v : item.x) {
      const Expr size = abs(v);
      item.most = !item.most.exists() ? size : max(item.most, size);
    }
    item.most = b_.fold(ScalarOp::max_, item.most);
  }
  neighbours(&Item::most, kActivationGroup, [&](Expr v, Expr y) { return max(v, y); });
  const Expr zero = b_.real(0, one), full = b_.real(127, one), least = b_.real(kLeast, one);
  for (Item& item : items) {
    const Expr inverse = select(least < item.most, full / item.most, zero);
    item.scale = item.most * (1.0 / 127);
    for (const Expr v : item.x) {
      const Expr rounded = fma(v, b_.splat(inverse, 4), b_.real(kRound, four));
      const Expr bits = bitcast(rounded, Scalar::u32);
      item.codes.push_back(bitcast(cast(bits, Scalar::u8), Scalar::i8));
    }
  }
  if (sums_) {
    const machine::DotRow& dot = t_.integers->row;
    const std::string name = fmt::format("dot4.{}i8.i32", scalar_name(dot.a));
    for (Item& item : items) {
      item.total = b_.integer(0, {Scalar::i32, 1});
      for (const Expr c : item.codes)
        item.total = b_.inst(name, {Scalar::i32, 1}, {item.total, b_.integer(1, {dot.a, 4}), c});
    }
    neighbours(&Item::total, fine, [&](Expr v, Expr y) { return v + y; });
    const double factor = t_.integers->form.offset ? 1 : t_.bias();
    for (Item& item : items) {
      item.total = item.scale * cast(item.total, Scalar::f32);
      item.total = item.total * factor;
    }
  }
  for (Item& item : items) item.scale = item.scale * t_.step();
  b_.use_fast_math({});
  for (const Item& item : items) where_exists(item, [&] { put(item); });
}

// Stores each code at its place: nonzero bits of the first one's number, plus a constant for each of the others.
void SkinnyActivations::put_bytes(const Item& item, Expr unit_line, Expr within) {
  const Expr inside = within % t_.share, base = within - inside;
  Expr place = base;
  for (int64_t bit = own_; bit < t_.share; bit *= 2) {
    const Expr set = (inside / bit) & 1;
    place = place + set * place_of(bit);
  }
  for (int64_t i = 0; i < own_; ++i) {
    const Expr at = place + place_of(i);
    const Expr line = unit_line + at / kLine * t_.columns;
    const Expr byte = item.row * code_bytes() + (line * kLine + at % kLine);
    b_.store(codes_, b_.extract(item.codes[0], i), byte, 1);
  }
}

void SkinnyActivations::put(const Item& item) {
  const int64_t share = own_, fine = t_.integers->fine;
  const Expr unit = item.element / t_.unit, within = item.element % t_.unit;
  const Expr block = unit / t_.columns * t_.columns, column = unit % t_.columns;
  // Sixteen elements of a unit, then those of the next column.
  if (apart_ > 1) {
    const Expr inside = within % t_.share, place = within - inside + inside * kFour;
    const Expr line = block * (t_.unit / kLine) + place / kLine * t_.columns + column;
    b_.store(codes_, item.codes[0], item.row * code_bytes() + (line * kLine + place % kLine), 4);
  } else if (own_ < t_.share) {
    put_bytes(item, block * (t_.unit / kLine) + column, within);
  } else {
    Expr line = block * (t_.unit / kLine) + within / kLine * t_.columns;
    line = line + column;
    const Expr at = item.row * code_bytes() + line * kLine + within % kLine;
    for (int64_t first = 0; first < share; first += 4) {
      const std::vector<int64_t>& run = runs_[first / 4];
      Expr code = b_.integer(0, {Scalar::i8, 4});
      bool as_it_is = true;
      for (int i = 0; i < 4; ++i) as_it_is = as_it_is && run[i] == first + i;
      if (as_it_is)
        code = item.codes[first / 4];
      else
        for (int i = 0; i < 4; ++i) {
          const int64_t e = run[i];
          code = b_.insert(code, b_.extract(item.codes[e / 4], e % 4), i);
        }
      // Shares longer than a line continue in the next.
      b_.store(codes_, code, at + (first / kLine * kLine * t_.columns + first % kLine), 4);
    }
  }
  b_.branch(within % fine == 0, [&] {
    const Expr group = block * groups() + within / fine * t_.columns + column;
    const Expr place = item.row * number_bytes() + group * each_number();
    const Expr both = sums_ ? b_.insert(b_.splat(item.scale, 2), item.total, 1) : item.scale;
    b_.store(numbers_, both, place, each_number());
  });
}

SkinnyActivations::Position SkinnyActivations::place(int row, Expr group, Expr column) {
  Position out;
  const int64_t bytes = t_.integers ? 1 : 4;
  out.codes = row * code_bytes() + (group * (t_.columns * t_.unit * bytes) + column * kLine);
  if (t_.integers)
    out.numbers = row * number_bytes() + (group * (t_.columns * groups() * each_number()) + column * each_number());
  return out;
}

Expr SkinnyActivations::quad(const Position& at, int64_t number) {
  return b_.load(codes_, {Scalar::f32, 4}, at.codes + number * kLine * t_.columns, kLine);
}

Expr SkinnyActivations::word(const Position& at, const std::vector<int64_t>& elements) {
  // Finds the run of these elements in their share.
  const int64_t base = elements[0] / t_.share * t_.share;
  int64_t place = -1;
  for (size_t r = 0; r < runs_.size(); ++r)
    if (runs_[r][0] == elements[0] - base) place = base + r * 4;
  LUMEN_CHECK(place >= 0, "no run begins at element {}", elements[0]);
  const Expr line = b_.load(codes_, {Scalar::i8, 16}, at.codes + place / kLine * kLine * t_.columns, kLine);
  const int first = place % kLine;
  return b_.shuffle({line}, {first, first + 1, first + 2, first + 3});
}

SkinnyActivations::Numbers SkinnyActivations::numbers(const Position& at, int64_t group) {
  const int both = sums_ ? 2 : 1;
  const Expr x = b_.load(numbers_, {Scalar::f32, both}, at.numbers + group * t_.columns * each_number(), 4 * both);
  return {sums_ ? b_.extract(x, 0) : x, sums_ ? b_.extract(x, 1) : Expr{}};
}

}  // namespace lumen::synth
