// A value read by overlapping windows gets the sum of their gradients. Along each axis of the operand one index is the
// main one, with stride s, and the others, i with stride d, count the elements of a window:
//
//   r[m, i] = a[start + s m + d i]   =>   da[l] = sum over i of p[l + d i, n - 1 - i]
//
// where p is dr along m with s - 1 zeros inserted between elements and zero padding: a pad, and windows again. Below a
// contract the sum over i is the contraction's own, with the other factor reversed along i: no tensor of the windows'
// size is made. Reversed tensors are gathered, so that no stride is negative.
//
// Where s > 1 and one index is inside, no zeros are inserted (phases.h): with l = s q + r, element r of place q
//
//   da[s q + r] = sum over t of dr[q + first + step t, i(t, r)]
//
// and below a contract r is an additional index of the other factor, which is gathered by t and r: one product for all
// classes, whose result has da's layout. A class that fewer windows meet than others multiplies zeros of that factor:
// for 3 x 3 elements with stride 2 this takes 16 / 9 of the forward pass's multiplications, where inserted zeros took 4
// times as many. Zeros are inserted where there are several indices inside, where windows are so dilated that phases
// would multiply more, and where extents are symbols. Proved by tests/graph/grad/grad_test.cpp and phases_test.cpp.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "graph/grad/phases.h"
#include "graph/grad/rules.h"

namespace lumen::graph {

namespace {

// v, whose axes are the main indices of `axes`, padded with zeros to the positions where windows begin.
ValueId placed(Builder& b, ValueId v, const std::vector<Axis>& axes, const Shape& operand) {
  std::vector<int64_t> starts, strides;
  bool whole = true;
  for (size_t d = 0; d < axes.size(); ++d) {
    starts.push_back(axes[d].start);
    strides.push_back(std::max<int64_t>(axes[d].main.stride, 1));
    whole = whole && starts[d] == 0 && strides[d] == 1 && b.type(v).shape[d] == operand[d];
  }
  return whole ? v : b.pad(v, operand, starts, strides);
}

// v, whose axes are the operand's split into places and classes (`phases`, one for each axis, or none), with each pair
// merged into one axis, and the padding sliced off.
ValueId together(Builder& b, ValueId v, const std::vector<std::optional<Phases>>& phases, const Shape& operand) {
  Shape shape = operand;
  std::vector<int64_t> starts(operand.size(), 0);
  for (size_t d = 0; d < operand.size(); ++d)
    if (phases[d]) {
      shape[d] = Dim(phases[d]->places * phases[d]->stride);
      starts[d] = phases[d]->shift;
    }
  v = b.reshape(v, shape);
  return shape == operand ? v : b.slice(v, starts, operand);
}

// The index layout of a sum over windows: the result has the operand's axes, split into places and classes; before the
// last axes, along which no windows overlap, come those of the taps.
struct WindowSum {
  Shape sizes;
  std::vector<size_t> place, member;  // by axis: index of the element or its place, and of its class
  std::vector<size_t> tap;            // by index inside of a window, axis by axis
  std::vector<int> taps() const { return {tap.begin(), tap.end()}; }

  WindowSum(const std::vector<Axis>& axes, const std::vector<std::optional<Phases>>& phases, const Shape& operand,
            const Shape& to) {
    size_t behind = axes.size();
    while (behind > 0 && axes[behind - 1].inside.empty()) --behind;
    for (size_t d = 0; d < axes.size(); ++d) {
      if (d == behind) append_taps(axes, phases, to);
      place.push_back(sizes.size());
      sizes.push_back(phases[d] ? Dim(phases[d]->places) : operand[d]);
      member.push_back(sizes.size());
      if (phases[d]) sizes.emplace_back(phases[d]->stride);
    }
    if (behind == axes.size()) append_taps(axes, phases, to);
  }

 private:
  void append_taps(const std::vector<Axis>& axes, const std::vector<std::optional<Phases>>& phases, const Shape& to) {
    for (size_t d = 0; d < axes.size(); ++d)
      for (const Movement& w : axes[d].inside) {
        tap.push_back(sizes.size());
        sizes.push_back(phases[d] ? Dim(phases[d]->taps.count) : to[w.index]);
      }
  }
};

// v with zeros where a class of an axis is met by fewer windows than taps: for values constant within a window.
ValueId where_met(Builder& b, ValueId v, const Taps& taps, size_t tap, size_t member) {
  if (!taps.has_none()) return v;
  Shape shape(b.type(v).shape.size(), Dim(1));
  shape[tap] = Dim(taps.count);
  shape[member] = Dim(taps.classes);
  std::vector<double> met;
  for (int64_t k = 0; k < taps.count * taps.classes; ++k) {
    const int64_t at = tap < member ? k : k % taps.count * taps.classes + k / taps.count;
    met.push_back(taps.element[at] < 0 ? 0 : 1);
  }
  return b.mul(v, b.constant({shape, b.type(v).element}, std::move(met)));
}

// The sum of p [elements of windows.., windows..] by elements of the operand. Where p is constant within a window, its
// extent there is 1.
ValueId summed(Builder& b, ValueId p, const std::vector<Axis>& axes, const Shape& from, const Shape& to) {
  std::vector<std::optional<Phases>> phases;
  std::vector<Taps> taps;
  std::vector<bool> alike;
  const Shape given = b.type(p).shape;
  for (size_t d = 0; d < axes.size(); ++d) {
    phases.push_back(lean_phases(axes[d], axes[d].start, to, from[d]));
    for (size_t k = 0; k < axes[d].inside.size(); ++k) {
      const Dim& extent = given[taps.size()];
      alike.push_back(extent == Dim(1));
      taps.push_back(phases[d] && !alike.back() ? phases[d]->taps : backwards(extent.number()));
    }
  }
  if (!taps.empty()) p = by_taps(b, p, taps, 0);
  // Inserted zeros and padding.
  const size_t ahead = b.type(p).shape.size() - axes.size();
  Shape padded = b.type(p).shape;
  std::vector<int64_t> starts(ahead, 0), strides(ahead, 1), begins(ahead, 0);
  for (size_t d = 0; d < axes.size(); ++d) {
    Dim& extent = padded[ahead + d];
    if (phases[d]) {
      const Placed place = placed_windows(*phases[d], to[axes[d].main.index].number());
      starts.push_back(place.start);
      strides.push_back(1);
      begins.push_back(place.begin);
      extent = Dim(place.extent);
      continue;
    }
    const int64_t end = axes[d].end(to);
    starts.push_back(axes[d].start + end);
    strides.push_back(std::max<int64_t>(axes[d].main.stride, 1));
    begins.push_back(0);
    extent = end == 0 ? from[d] : Dim(from[d].number() + end);
  }
  p = b.pad(p, padded, starts, strides);
  if (taps.empty()) return b.reshape(p, from);
  const WindowSum sum(axes, phases, from, to);
  const size_t rank = sum.sizes.size();
  std::vector<int64_t> moves(padded.size() * rank, 0);
  size_t row = 0;
  for (size_t k = 0; k < taps.size(); ++k, ++row)
    if (!alike[k]) moves[row * rank + sum.tap[k]] = 1;
  for (size_t d = 0, k = 0; d < axes.size(); k += axes[d++].inside.size())
    if (phases[d] && !alike[k]) moves[row++ * rank + sum.member[d]] = 1;
  for (size_t d = 0, k = 0; d < axes.size(); ++d, ++row) {
    moves[row * rank + sum.place[d]] = 1;
    for (const Movement& w : axes[d].inside) moves[row * rank + sum.tap[k++]] = phases[d] ? phases[d]->step : w.stride;
  }
  p = b.windows(p, begins, moves, sum.sizes);
  for (size_t d = 0, k = 0; d < axes.size(); k += axes[d++].inside.size())
    if (phases[d] && alike[k]) p = where_met(b, p, phases[d]->taps, sum.tap[k], sum.member[d]);
  return together(b, b.reduce(p, Reduction::sum, sum.taps()), phases, from);
}

}  // namespace

ValueId sum_of_windows(Reverse& r, ValueId v, ValueId gradient) {
  Builder& b = r.build;
  const Node node = b.graph[v];
  const Shape from = b.type(node.operands[0]).shape, to = node.type.shape;
  const std::vector<std::vector<Movement>> movements = movements_of(node);
  if (has_diagonal(movements))
    throw user_error("no gradient: windows %{}{} read several axes by one index", v,
                     node.label.empty() ? "" : " (" + node.label + ")");
  // A gradient that is constant within windows is summed before it is broadcast.
  if (b.graph[gradient].op == Op::broadcast_) {
    const ValueId narrow = b.graph[gradient].operands[0];
    if (b.type(narrow).shape.size() == to.size()) gradient = narrow;
  }
  const auto extent = [&](int j) { return b.type(gradient).shape[j]; };
  // The longest index is the main one.
  std::vector<Axis> axes;
  std::vector<int> order, summed_axes;
  std::vector<bool> used(to.size());
  for (size_t d = 0; d < from.size(); ++d) {
    Axis axis{node.attributes.starts[d], {}, {}};
    for (const Movement& w : movements[d]) {
      used[w.index] = true;
      const bool longer = axis.main.index < 0 || (to[w.index].is_number() && to[axis.main.index].is_number() &&
                                                  to[w.index].number() > to[axis.main.index].number());
      if (axis.main.index >= 0) axis.inside.push_back(longer ? axis.main : w);
      if (longer) axis.main = w;
    }
    for (const Movement& w : axis.inside) order.push_back(w.index);
    axes.push_back(std::move(axis));
  }
  const auto inside = std::ssize(order);
  for (const Axis& a : axes)
    if (a.main.index >= 0) order.push_back(a.main.index);
  // Indices inside windows first, then one axis for each axis of the operand.
  for (size_t j = 0; j < to.size(); ++j)
    if (!used[j]) summed_axes.push_back(j);
  const auto stretched = [&](int j) { return extent(j) != to[j]; };
  for (const Axis& a : axes)
    if (a.main.index >= 0 && stretched(a.main.index)) {  // only elements of windows may be broadcast
      gradient = b.broadcast(gradient, to);
      break;
    }
  ValueId p = gradient;
  if (!summed_axes.empty()) {
    for (const int j : summed_axes)
      if (stretched(j)) {
        p = b.broadcast(p, to);
        break;
      }
    p = b.reduce(p, Reduction::sum, summed_axes);
  }
  std::vector<int> all = order;
  all.insert(all.end(), summed_axes.begin(), summed_axes.end());
  p = b.permute(p, all);
  Shape shape;
  for (std::ptrdiff_t k = 0; k < inside; ++k) shape.push_back(b.type(p).shape[k]);
  for (const Axis& a : axes) shape.push_back(a.main.index < 0 ? Dim(1) : to[a.main.index]);
  return summed(b, b.reshape(p, shape), axes, from, to);
}

namespace {

// Whether a reduction of `windows` over `axes` reduces exactly the indices inside windows and keeps their positions;
// then the axes of the operand.
std::optional<std::vector<Axis>> axes_of_reduction(const Node& windows, const std::vector<int>& axes) {
  const std::vector<std::vector<Movement>> movements = movements_of(windows);
  if (has_diagonal(movements)) return std::nullopt;
  std::vector<Axis> out;
  size_t walked = 0;
  for (size_t d = 0; d < movements.size(); ++d) {
    Axis axis{windows.attributes.starts[d], {}, {}};
    for (const Movement& w : movements[d]) {
      const bool is_reduced = std::find(axes.begin(), axes.end(), w.index) != axes.end();
      if (!is_reduced && axis.main.index >= 0) return std::nullopt;
      if (is_reduced)
        axis.inside.push_back(w);
      else
        axis.main = w;
    }
    if (axis.inside.size() > 1 || (axis.main.index < 0 && !axis.inside.empty())) return std::nullopt;
    if (axis.inside.empty() && axis.main.index >= 0 && (axis.main.stride != 1 || axis.start != 0)) return std::nullopt;
    walked += movements[d].size();
    out.push_back(std::move(axis));
  }
  // An index that moves along no axis would repeat all elements.
  if (walked != windows.type.shape.size()) return std::nullopt;
  return out;
}

// One number per window, rearranged to the windows that each element meets: tap by tap, the same for all elements of a
// class.
ValueId met_windows(Builder& b, ValueId of_windows, const std::vector<Axis>& axes,
                    const std::vector<std::optional<Phases>>& phases, const WindowSum& sum, const Shape& to) {
  std::vector<int> order;
  std::vector<bool> lies(to.size());
  for (const Axis& a : axes)
    if (a.main.index >= 0) {
      order.push_back(a.main.index);
      lies[a.main.index] = true;
    }
  for (size_t j = 0; j < to.size(); ++j)
    if (!lies[j]) order.push_back(j);
  of_windows = b.permute(of_windows, order);
  Shape shape, padded, sizes = sum.sizes;
  const size_t rank = sizes.size();
  std::vector<int64_t> starts, begins, moves(axes.size() * rank, 0);
  for (size_t d = 0, k = 0; d < axes.size(); ++d) {
    shape.push_back(axes[d].main.index < 0 ? Dim(1) : to[axes[d].main.index]);
    padded.push_back(shape.back());
    starts.push_back(0);
    begins.push_back(0);
    moves[d * rank + sum.place[d]] = 1;
    if (!phases[d]) continue;
    const Placed at = placed_windows(*phases[d], shape.back().number());
    padded.back() = Dim(at.extent);
    starts.back() = at.start;
    begins.back() = at.begin;
    moves[d * rank + sum.tap[k++]] = phases[d]->step;
    sizes[sum.member[d]] = Dim(1);
  }
  const ValueId among = b.pad(b.reshape(of_windows, shape), padded, starts);
  return b.windows(among, begins, moves, sizes);
}

}  // namespace

bool extremes_of_windows(Reverse& r, ValueId extreme, ValueId share) {
  Builder& b = r.build;
  const Node reduce = b.graph[extreme], node = b.graph[reduce.operands[0]];
  if (node.op != Op::windows_) return false;
  const std::optional<std::vector<Axis>> axes = axes_of_reduction(node, reduce.attributes.axes);
  if (!axes) return false;
  const ValueId source = node.operands[0];
  const Shape from = b.type(source).shape, to = node.type.shape;
  std::vector<std::optional<Phases>> phases(axes->size());
  for (size_t d = 0; d < axes->size(); ++d) {
    const Axis& a = (*axes)[d];
    if (a.inside.empty()) continue;
    if (!from[d].is_number() || !to[a.main.index].is_number() || !to[a.inside[0].index].is_number()) return false;
    phases[d] = phases_of(a.start, a.main.stride, a.inside[0].stride, to[a.inside[0].index].number(), from[d].number());
    if (!phases[d]) return false;
  }
  const WindowSum sum(*axes, phases, from, to);
  // Elements by place and class, once for all of their windows.
  Shape whole = from, apart = sum.sizes;
  std::vector<int64_t> shifts(from.size(), 0);
  for (size_t d = 0; d < from.size(); ++d)
    if (phases[d]) {
      whole[d] = Dim(phases[d]->places * phases[d]->stride);
      shifts[d] = phases[d]->shift;
    }
  for (const size_t t : sum.tap) apart[t] = Dim(1);
  const ValueId elements = b.reshape(whole == from ? source : b.pad(source, whole, shifts), apart);
  const Scalar type = b.type(source).element.scalar;
  Formula part;  // of an element that equals a window's extreme
  part.inputs = {type, type, type};
  const int element = part.input(0), largest = part.input(1), given = part.input(2), none = part.constant(type, 0);
  part.outputs = {part.op(ScalarOp::select_, part.op(ScalarOp::eq_, element, largest), given, none)};
  ValueId parts = b.map(
      part, {elements, met_windows(b, extreme, *axes, phases, sum, to), met_windows(b, share, *axes, phases, sum, to)});
  for (size_t d = 0, k = 0; d < axes->size(); ++d)
    if (phases[d]) parts = where_met(b, parts, phases[d]->taps, sum.tap[k++], sum.member[d]);
  r.add(source, together(b, b.reduce(parts, Reduction::sum, sum.taps()), phases, from));
  return true;
}

namespace {

bool is_in(const std::string& list, char c) {
  return list.find(c) != std::string::npos;
}

// The axes of windows that a product reads, if it sums over elements within windows and the other factor does not
// depend on the windows' positions; else nullopt.
std::optional<std::vector<Axis>> axes_of_product(const Node& windows,
                                                 const std::vector<std::vector<Movement>>& movements,
                                                 const std::string& letters, const std::string& of_other,
                                                 const std::string& of_gradient) {
  std::vector<Axis> axes;
  bool overlaps = false;
  for (size_t d = 0; d < movements.size(); ++d) {
    Axis axis{windows.attributes.starts[d], {}, {}};
    if (movements[d].size() == 1) axis.main = movements[d][0];
    if (movements[d].size() > 1)
      for (const Movement& w : movements[d]) {
        const char c = letters[w.index];
        const bool stays = is_in(of_gradient, c), is_shared = is_in(of_other, c);
        if (stays == is_shared || (stays && axis.main.index >= 0)) return std::nullopt;
        if (stays)
          axis.main = w;
        else
          axis.inside.push_back(w);
      }
    if (movements[d].size() > 1 && axis.main.index < 0) return std::nullopt;
    overlaps = overlaps || !axis.inside.empty();
    axes.push_back(std::move(axis));
  }
  if (!overlaps) return std::nullopt;
  return axes;
}

// Whether a pad adds zeros only along axes with overlapping windows, and none between elements except where windows
// have stride 1: gradients of the padding are not needed.
bool surrounds_windows(const Graph& g, const Node& pad, const std::vector<Axis>& axes) {
  for (size_t d = 0; d < axes.size(); ++d) {
    const bool grows = pad.type.shape[d] != g[pad.operands[0]].type.shape[d];
    if (axes[d].inside.empty() ? grows || pad.attributes.strides[d] != 1
                               : pad.attributes.strides[d] != 1 && axes[d].main.stride != 1)
      return false;
  }
  return true;
}

// The gradient of a product's result, zero-padded for windows over it, and those windows: the index of a window's
// position becomes that of the element, or of its place within its class.
struct GradientWindows {
  ValueId views = -1;
  std::string letters;
};
GradientWindows windows_of_gradient(Builder& b, ValueId gradient, const std::string& of_gradient,
                                    const std::vector<Axis>& axes, const std::vector<std::optional<Phases>>& phases,
                                    const std::vector<int64_t>& around, const std::vector<int64_t>& between,
                                    const Shape& from, const Shape& to, const std::string& letters) {
  GradientWindows out;
  std::vector<int64_t> starts(of_gradient.size(), 0), strides(of_gradient.size(), 1), begins(of_gradient.size(), 0);
  Shape padded = b.type(gradient).shape, sizes;
  std::vector<std::vector<int64_t>> moves;
  for (size_t g = 0; g < of_gradient.size(); ++g) {
    const auto place = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) {
      return !a.inside.empty() && letters[a.main.index] == of_gradient[g];
    });
    out.letters += of_gradient[g];
    moves.emplace_back(out.letters.size(), 0).back() = 1;
    if (place == axes.end()) {
      sizes.push_back(padded[g]);
      continue;
    }
    const size_t d = place - axes.begin();
    if (const std::optional<Phases>& p = phases[d]) {
      const Placed at = placed_windows(*p, to[place->main.index].number());
      begins[g] = at.begin;
      starts[g] = at.start;
      padded[g] = Dim(at.extent);
      sizes.emplace_back(p->places);
      sizes.emplace_back(p->taps.count);
      out.letters += letters[place->inside[0].index];
      moves.back().push_back(p->step);
      continue;
    }
    const int64_t end = place->end(to), offset = place->start + end - around[d];
    const int64_t last = (to[place->main.index].number() - 1) * place->main.stride;
    begins[g] = std::max<int64_t>(0, -offset);
    starts[g] = std::max<int64_t>(0, offset);
    strides[g] = place->main.stride;
    padded[g] = Dim(std::max(begins[g] + between[d] * (from[d].number() - 1) + 1 + end, starts[g] + last + 1));
    sizes.push_back(from[d]);
    moves.back().back() = between[d];
    for (const Movement& w : place->inside) {
      out.letters += letters[w.index];
      sizes.push_back(to[w.index]);
      moves.back().push_back(w.stride);
    }
  }
  std::vector<int64_t> rows;
  for (std::vector<int64_t>& row : moves) {
    row.resize(out.letters.size(), 0);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  out.views = b.windows(b.pad(gradient, padded, starts, strides), begins, rows, sizes);
  return out;
}

// One letter for each axis with phases; nullopt if no letters are left.
std::optional<std::string> class_letters(const std::vector<std::optional<Phases>>& phases, const std::string& taken) {
  std::string out;
  char c = 'a';
  for (const std::optional<Phases>& p : phases) {
    if (!p) {
      out += ' ';
      continue;
    }
    while (c <= 'z' && is_in(taken, c)) ++c;
    if (c > 'z') return std::nullopt;
    out += c++;
  }
  return out;
}

}  // namespace

bool windows_gradient(Reverse& r, ValueId operand, const std::string& letters, ValueId other,
                      const std::string& of_other, ValueId gradient, const std::string& of_gradient) {
  Builder& b = r.build;
  if (b.graph[operand].op != Op::windows_) return false;
  const Node node = b.graph[operand];
  const Shape to = node.type.shape;
  const std::vector<std::vector<Movement>> movements = movements_of(node);
  if (has_diagonal(movements)) return false;
  std::optional<std::vector<Axis>> found = axes_of_product(node, movements, letters, of_other, of_gradient);
  if (!found) return false;
  std::vector<Axis>& axes = *found;
  // Padding that the windows read gets no gradient: for a pad, only the inner elements do.
  ValueId source = node.operands[0];
  std::vector<int64_t> around(movements.size(), 0), between(movements.size(), 1);
  if (const Node& pad = b.graph[source]; pad.op == Op::pad_ && surrounds_windows(b.graph, pad, axes)) {
    around = pad.attributes.starts;
    between = pad.attributes.strides;
    source = pad.operands[0];
  }
  const Shape from = b.type(source).shape;
  std::vector<std::optional<Phases>> phases;
  for (size_t d = 0; d < axes.size(); ++d)
    phases.push_back(lean_phases(axes[d], axes[d].start - around[d], to, from[d]));
  std::optional<std::string> classes = class_letters(phases, letters + of_other + of_gradient);
  if (!classes) {
    phases.assign(axes.size(), std::nullopt);
    classes = std::string(axes.size(), ' ');
  }
  const GradientWindows windows =
      windows_of_gradient(b, gradient, of_gradient, axes, phases, around, between, from, to, letters);
  // The other factor, reversed or by classes: summed letters first, then the others.
  std::vector<Taps> taps;
  std::string order, summed_letters, stays;
  for (size_t d = 0; d < axes.size(); ++d)
    for (const Movement& w : axes[d].inside) {
      order += letters[w.index];
      taps.push_back(phases[d] ? phases[d]->taps : backwards(to[w.index].number()));
    }
  std::string of_classes;
  for (const char c : *classes)
    if (c != ' ') of_classes += c;
  const auto is_fixed = [&](char c) { return b.type(other).shape[of_other.find(c)].is_number(); };
  for (const char c : of_other)
    if (!is_in(order, c))
      (!of_classes.empty() && is_in(of_gradient, c) && is_fixed(c) && !is_in(letters, c) ? summed_letters : stays) += c;
  const std::string rows = order;
  order += summed_letters + stays;
  std::vector<int> axis_of;
  for (const char c : order) axis_of.push_back(of_other.find(c));
  const ValueId factor = by_taps(b, b.permute(other, axis_of), taps, summed_letters.size());
  const std::string of_factor = rows + summed_letters + of_classes + stays;
  std::string result;
  Shape shape;
  for (size_t d = 0; d < axes.size(); ++d) {
    const Axis& a = axes[d];
    if (a.main.index >= 0) result += letters[a.main.index];
    if (phases[d]) result += (*classes)[d];
    shape.push_back(a.main.index < 0 ? Dim(1) : a.inside.empty() ? to[a.main.index] : from[d]);
  }
  ValueId sum = b.contract(windows.views, factor, windows.letters, of_factor, result);
  sum = b.convert(sum, b.type(source).element.scalar);
  sum = together(b, sum, phases, shape);
  for (Axis& a : axes)
    if (!a.inside.empty()) a = {0, {a.main.index, 1}, {}};
  r.add(source, placed(b, sum, axes, from));
  return true;
}

}  // namespace lumen::graph
