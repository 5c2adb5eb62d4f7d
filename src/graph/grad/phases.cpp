#include "graph/grad/phases.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lumen::graph {

std::vector<std::vector<Movement>> movements_of(const Node& windows) {
  const size_t rank = windows.type.shape.size();
  std::vector<std::vector<Movement>> out(windows.attributes.starts.size());
  for (size_t d = 0; d < out.size(); ++d)
    for (int j = 0; std::cmp_less(j, rank); ++j)
      if (const int64_t stride = windows.attributes.strides[d * rank + j]; stride != 0) out[d].push_back({j, stride});
  return out;
}

bool has_diagonal(const std::vector<std::vector<Movement>>& movements) {
  std::vector<int> seen;
  for (const auto& axis : movements)
    for (const Movement& w : axis) {
      if (std::find(seen.begin(), seen.end(), w.index) != seen.end()) return true;
      seen.push_back(w.index);
    }
  return false;
}

bool Taps::has_none() const {
  return std::find(element.begin(), element.end(), -1) != element.end();
}

Taps backwards(int64_t count) {
  Taps t{count, 1, std::vector<int64_t>(count)};
  std::iota(t.element.rbegin(), t.element.rend(), 0);
  return t;
}

namespace {

// The largest number whose product with the positive b is at most a.
int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// Element i of window q + `window` is number `member` of place q.
struct Meeting {
  int64_t window = 0, member = 0;
};
Meeting meeting(int64_t at, int64_t stride) {
  const int64_t place = floor_div(at, stride);
  return {-place, at - place * stride};
}

}  // namespace

std::optional<Phases> phases_of(int64_t start, int64_t stride, int64_t d, int64_t count, int64_t extent) {
  constexpr int64_t kMost = 1 << 20;
  if (count < 1 || extent < 1 || stride > kMost / count) return std::nullopt;
  // The amount of padding in front decides which windows meet all classes: choose the shift with the least work, and
  // the smallest of those.
  std::optional<Phases> best;
  for (int64_t shift = 0; shift < stride; ++shift) {
    Phases p{stride, shift, (extent + shift + stride - 1) / stride, 0, 0, {}};
    int64_t last = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t window = meeting(start + shift + d * i, stride).window;
      p.first = i == 0 ? window : std::min(p.first, window);
      last = i == 0 ? window : std::max(last, window);
    }
    for (int64_t i = 0; i < count; ++i)
      p.step = std::gcd(p.step, meeting(start + shift + d * i, stride).window - p.first);
    p.step = std::max<int64_t>(p.step, 1);
    p.taps = {(last - p.first) / p.step + 1, stride, {}};
    if (!best || p.places * p.taps.count < best->places * best->taps.count) best = std::move(p);
  }
  if (best->taps.count > kMost / stride) return std::nullopt;
  best->taps.element.assign(best->taps.count * stride, -1);
  for (int64_t i = 0; i < count; ++i) {
    const Meeting m = meeting(start + best->shift + d * i, stride);
    best->taps.element[(m.window - best->first) / best->step * stride + m.member] = i;
  }
  return best;
}

std::optional<Phases> lean_phases(const Axis& axis, int64_t start, const Shape& to, const Dim& extent) {
  if (axis.inside.size() != 1 || axis.main.index < 0 || axis.main.stride < 2 || !extent.is_number())
    return std::nullopt;
  const Dim& count = to[axis.inside[0].index];
  if (!count.is_number() || !to[axis.main.index].is_number()) return std::nullopt;
  std::optional<Phases> p = phases_of(start, axis.main.stride, axis.inside[0].stride, count.number(), extent.number());
  if (p && p->places * p->stride * p->taps.count >= extent.number() * count.number()) return std::nullopt;
  return p;
}

ValueId by_taps(Builder& b, ValueId v, const std::vector<Taps>& taps, size_t between) {
  const Shape shape = b.type(v).shape;
  const auto from = shape.begin();
  const auto rest = from + std::ssize(taps) + std::ptrdiff_t(between);
  const int64_t middle = elements({from + std::ssize(taps), rest}).number();
  // Rows of the result in order: for each the row of v, or an additional last row of zeros.
  std::vector<int64_t> rows{0};  // -1: none
  const auto extend = [&](int64_t count, const auto& row) {
    std::vector<int64_t> next;
    for (const int64_t r : rows)
      for (int64_t k = 0; k < count; ++k) next.push_back(row(r, k));
    rows = std::move(next);
  };
  // First gather the front rows, tap by tap, with all classes adjacent; then move the classes after the middle.
  Shape result, indexed;
  int64_t fronts = 1, backs = 1;
  for (const Taps& t : taps) {
    result.emplace_back(t.count);
    fronts *= t.count;
    backs *= t.classes;
  }
  result.insert(result.end(), from + std::ssize(taps), rest);
  for (const Taps& t : taps)
    if (t.classes > 1) result.emplace_back(t.classes);
  result.insert(result.end(), rest, shape.end());
  const auto row_of = [&](int64_t front, int64_t back) {
    int64_t row = 0, scale = 1;
    for (size_t k = taps.size(); k-- > 0;) {
      const int64_t e = taps[k].element[front % taps[k].count * taps[k].classes + back % taps[k].classes];
      if (e < 0) return int64_t(-1);
      row += e * scale;
      scale *= shape[k].number();
      front /= taps[k].count;
      back /= taps[k].classes;
    }
    return row;
  };
  extend(fronts, [](int64_t, int64_t k) { return k; });
  extend(middle, [&](int64_t front, int64_t k) { return front * middle + k; });
  extend(backs, [&](int64_t r, int64_t k) {
    const int64_t row = row_of(r / middle, k);
    return row < 0 ? row : row * middle + r % middle;
  });
  const int64_t all = elements({from, rest}).number();
  const bool has_zeros = std::any_of(rows.begin(), rows.end(), [](int64_t r) { return r < 0; });
  std::vector<double> index;
  for (const int64_t r : rows) index.push_back(double(r < 0 ? all : r));
  bool same = std::ssize(index) == all;
  for (size_t k = 0; same && k < index.size(); ++k) same = index[k] == double(k);
  if (same) return b.reshape(v, result);
  Shape flat(rest, shape.end());
  flat.insert(flat.begin(), Dim(all));
  v = b.reshape(v, flat);
  if (has_zeros) {
    flat[0] = Dim(all + 1);
    v = b.pad(v, flat, std::vector<int64_t>(flat.size(), 0));
  }
  const Type type{{Dim(std::ssize(index))}, {Scalar::i32, nullptr}};
  const ValueId picked = b.constant(type, std::move(index));
  return b.reshape(b.gather(v, picked), result);
}

Placed placed_windows(const Phases& p, int64_t windows) {
  Placed out{std::max<int64_t>(0, p.first), std::max<int64_t>(0, -p.first), 0};
  out.extent = std::max(out.begin + p.places + p.step * (p.taps.count - 1), out.start + windows);
  return out;
}

}  // namespace lumen::graph
