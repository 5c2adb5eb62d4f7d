// Subscripts that are sums of multiples of indices: x[h * 2 + i - 1]. Such an axis is read by windows, after the tensor
// is padded with the value for positions outside. See indexed.h.
#include <algorithm>
#include <numeric>

#include "graph/elaborate/indexed.h"

namespace lumen::graph {

using lang::Expr;
using lang::ExprKind;

namespace {

bool add(int64_t& to, int64_t x) {
  return !__builtin_add_overflow(to, x, &to);
}

}  // namespace

std::optional<Indexed::Affine> Indexed::affine(const Expr& e) {
  e_.session_.spend(e.place);
  const Elaboration::Deeper guard(e_.session_, e.place);
  const auto too_large = [&] { return error_at(e.place, "this subscript does not fit into 64 bits"); };
  if (e.kind == ExprKind::name && find_index(e.text) >= 0) {
    const int k = find_index(e.text);
    return Affine{indices_[k].first, {{k, 1}}};
  }
  if (!mentions(e)) {
    const Value v = e_.expression(e);
    if (v.is_integer()) return Affine{v.number.integer, {}};
    return std::nullopt;
  }
  const auto times = [&](Affine a, int64_t factor) {
    if (__builtin_mul_overflow(a.start, factor, &a.start)) throw too_large();
    for (auto& [index, stride] : a.strides)
      if (__builtin_mul_overflow(stride, factor, &stride)) throw too_large();
    std::erase_if(a.strides, [](const auto& s) { return s.second == 0; });
    return a;
  };
  if (e.kind == ExprKind::unary && e.text == "-") {
    auto a = affine(*e.args[0]);
    if (a) a = times(*std::move(a), -1);
    return a;
  }
  if (e.kind != ExprKind::binary || (e.text != "+" && e.text != "-" && e.text != "*")) return std::nullopt;
  auto a = affine(*e.args[0]);
  if (!a) return std::nullopt;
  auto b = affine(*e.args[1]);
  if (!b) return std::nullopt;
  if (e.text == "*") {
    if (!a->strides.empty() && !b->strides.empty()) return std::nullopt;
    return a->strides.empty() ? times(*std::move(b), a->start) : times(*std::move(a), b->start);
  }
  if (e.text == "-") b = times(*std::move(b), -1);
  if (!add(a->start, b->start)) throw too_large();
  for (const auto& [index, stride] : b->strides) {
    const auto same =
        std::find_if(a->strides.begin(), a->strides.end(), [&](const auto& s) { return s.first == index; });
    if (same == a->strides.end()) {
      a->strides.emplace_back(index, stride);
    } else if (!add(same->second, stride)) {
      throw too_large();
    }
  }
  std::erase_if(a->strides, [](const auto& s) { return s.second == 0; });
  return a;
}

// A subscript that moves along an axis whose extent is a number. nullopt where integers select rows instead, as they do
// along a first axis that has no affine subscript.
std::optional<Indexed::Affine> Indexed::shifted(const Expr& e, const Value& base, size_t axis, bool has_outside) {
  auto a = affine(e);
  if (!a || a->strides.empty()) return std::nullopt;
  const bool may_pick = axis == 0 && !has_outside;
  const auto backwards = std::find_if(a->strides.begin(), a->strides.end(), [](const auto& s) { return s.second < 0; });
  if (backwards != a->strides.end()) {
    if (may_pick) return std::nullopt;
    throw error_at(e.place, fmt::format("index '{}' runs backwards", indices_[backwards->first].name),
                   "let it run forwards here, and the other factor backwards: x[h + i] * k[2 - i]");
  }
  const Dim& extent = base.shape[axis];
  if (!extent.is_number()) {
    if (may_pick) return std::nullopt;
    throw NeedsExtent(
        Exit::user,
        render_diagnostic(e.place, fmt::format("an index is shifted along an axis of extent {}", written(extent)),
                          "such an axis has an extent that is known when the graph is built"));
  }
  find_extent(*a, extent, has_outside, e.place);
  return a;
}

// The one index whose extent has no other source extends as far as it stays inside.
void Indexed::find_extent(const Affine& a, const Dim& extent, bool has_outside, const Place& place) {
  int open = -1;
  int64_t last = a.start, own = 1;
  for (const auto& [k, stride] : a.strides) {
    Index& index = indices_[k];
    if (!index.extent) {
      if (open >= 0 || has_outside)
        throw error_at(
            place, fmt::format("the extent of index '{}' is not known", index.name),
            "it follows from the type of the function's result, a range, sum(i in 0..3), or a subscript that is "
            "this index alone");
      open = k;
      own = stride;
    } else if (!index.extent->is_number()) {
      throw NeedsExtent(
          Exit::user, render_diagnostic(
                          place, fmt::format("index '{}' of extent {} is shifted", index.name, written(*index.extent)),
                          "such an index has an extent that is known when the graph is built"));
    } else {
      last += stride * (index.extent->number() - 1);
    }
  }
  if (open < 0) return;
  if (last >= extent.number())
    throw error_at(place, fmt::format("no place of index '{}' is inside the axis of extent {}", indices_[open].name,
                                      written(extent)));
  indices_[open].extent = Dim((extent.number() - 1 - last) / own + 1);
}

std::pair<int64_t, int64_t> Indexed::reach(const Affine& a, const Place& place) const {
  int64_t last = a.start;
  for (const auto& [k, stride] : a.strides) {
    int64_t way = 0;
    if (__builtin_mul_overflow(indices_[k].extent->number() - 1, stride, &way) || !add(last, way))
      throw error_at(place, "this subscript does not fit into 64 bits");
  }
  return {a.start, last};
}

// The tensor padded with the value for positions outside, as far as subscripts reach; these then start inside.
Value Indexed::surrounded(const Expr& e, const Value& base, std::vector<Affine>& axes) {
  Shape shape = base.shape;
  std::vector<int64_t> starts(axes.size(), 0);
  bool grows = false;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (axes[d].strides.empty() || axes[d].is_plain() || !base.shape[d].is_number()) continue;
    const Place& place = e.args[d + 1]->place;
    const int64_t extent = base.shape[d].number();
    const auto [first, last] = reach(axes[d], place);
    if (first >= 0 && last < extent) continue;
    if (!e.outside)
      throw error_at(place,
                     fmt::format("this subscript reads places {} to {} of an axis of extent {}", first, last, extent),
                     "give a padding value: x[i - 1; 0], or keep the index inside");
    constexpr int64_t kMost = int64_t{1} << 40;
    if (first < -kMost || last > kMost) throw error_at(place, "this subscript reaches too far outside");
    starts[d] = std::max<int64_t>(0, -first);
    shape[d] = Dim(starts[d] + std::max(extent, last + 1));
    axes[d].start += starts[d];
    grows = true;
  }
  if (!grows) return base;
  const Value outside = e_.expression(*e.outside);
  if (!outside.is_number())
    throw error_at(e.outside->place, fmt::format("the padding value is a number, found {}", describe(outside)));
  Node pad = e_.make(Op::pad_, {base.id}, {shape, {}});
  pad.attributes.starts = starts;
  pad.attributes.strides.assign(axes.size(), 1);
  Value out = Value::of_node(e_.graph_, e_.append(std::move(pad), e.place));
  if (outside.number.value() == 0) return out;
  Value inside;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (shape[d] == base.shape[d]) continue;
    Shape line(axes.size(), Dim(1));
    line[d] = shape[d];
    Node n = e_.make(Op::iota_, {}, {std::move(line), {Scalar::i32, nullptr}});
    n.attributes.axis = d;
    const Value at = Value::of_node(e_.graph_, e_.append(std::move(n), e.place));
    const auto bound = [&](const char* op, int64_t x) {
      const Value within = e_.binary(op, at, Value::of(Number::of(x)), e.place);
      inside = inside.is_tensor() ? e_.binary("and", inside, within, e.place) : within;
    };
    if (starts[d] > 0) bound(">=", starts[d]);
    if (shape[d].number() > starts[d] + base.shape[d].number()) bound("<", starts[d] + base.shape[d].number());
  }
  return Value::of_node(e_.graph_, e_.node_of(e_.select(inside, out, outside, e.place), e.place));
}

Indexed::Item Indexed::windowed(const Expr& e, Value base, std::vector<Affine> axes, std::optional<Item> rows) {
  base = surrounded(e, base, axes);
  // An axis that its indices count like digits is split by a reshape: no windows overlap.
  Shape apart;
  std::vector<Affine> ways;
  for (size_t d = 0; d < axes.size(); ++d) {
    std::vector<std::pair<int, int64_t>> digits = axes[d].strides;
    std::erase_if(digits, [&](const auto& s) { return indices_[s.first].extent == Dim(1); });
    std::sort(digits.begin(), digits.end(), [](const auto& x, const auto& y) { return x.second > y.second; });
    int64_t count = 1;
    bool counts = axes[d].start == 0 && digits.size() > 1;
    for (size_t k = digits.size(); counts && k-- > 0; count *= indices_[digits[k].first].extent->number())
      counts = digits[k].second == count;
    if (!counts || base.shape[d] != Dim(count)) {
      apart.push_back(base.shape[d]);
      ways.push_back(axes[d]);
      continue;
    }
    for (const auto& [k, stride] : digits) {
      apart.push_back(*indices_[k].extent);
      ways.push_back({0, {{k, 1}}});
    }
  }
  if (apart.size() != base.shape.size()) base = e_.reshape(base, apart, e.place);
  Item out;
  out.loose = true;
  Shape shape;
  if (rows) shape.push_back(base.shape[0]);
  for (const Affine& a : axes)
    for (const auto& [k, stride] : a.strides) {
      out.over.push_back(k);
      shape.push_back(*indices_[k].extent);
    }
  Node n = e_.make(Op::windows_, {base.id}, {shape, {}});
  n.attributes.strides.assign(ways.size() * shape.size(), 0);
  for (size_t d = 0; d < ways.size(); ++d) {
    n.attributes.starts.push_back(ways[d].start);
    for (const auto& [k, stride] : ways[d].strides) {
      const size_t j = std::find(out.over.begin(), out.over.end(), k) - out.over.begin();
      n.attributes.strides[d * shape.size() + j + (rows ? 1 : 0)] = stride;
    }
  }
  if (rows) n.attributes.strides[0] = 1;
  out.value = Value::of_node(e_.graph_, e_.append(std::move(n), e.place));
  if (rows) pick_rows(out, *std::move(rows), e.place);
  return out;
}

}  // namespace lumen::graph
