// What is read by overlapping windows gets the sum of their gradients. Along each axis of the operand one index is the
// main one, with stride s, and the others, i with stride d, number the elements of a window:
//
//   r[m, i] = a[start + s m + d i]   =>   da[l] = sum over i of p[l + d i, n - 1 - i]
//
// where p is dr along m with s - 1 zeros between elements and zeros around: a pad, and windows again. Below a contract
// the sum over i is the contraction's own, with the other factor reversed along i: no tensor of the windows' size is
// made. Reversed tensors are gathered, so that no stride is negative. Proved by tests/graph/grad/grad_test.cpp.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "graph/grad/rules.h"

namespace lumen::graph {

namespace {

// An axis of the operand: what moves along it.
struct Way {
  int index = -1;  // of the result
  int64_t stride = 0;
};
struct Axis {
  int64_t start = 0;
  Way main;                                // index -1: read at one place
  std::vector<Way> inside;                 // of a window
  int64_t end(const Shape& shape) const {  // how far a window reaches
    int64_t way = 0;
    for (const Way& w : inside) way += w.stride * (shape[w.index].number() - 1);
    return way;
  }
};

std::vector<std::vector<Way>> ways_of(const Node& windows) {
  const size_t rank = windows.type.shape.size();
  std::vector<std::vector<Way>> out(windows.attributes.starts.size());
  for (size_t d = 0; d < out.size(); ++d)
    for (int j = 0; std::cmp_less(j, rank); ++j)
      if (const int64_t stride = windows.attributes.strides[d * rank + j]; stride != 0) out[d].push_back({j, stride});
  return out;
}

bool has_diagonal(const std::vector<std::vector<Way>>& ways) {
  std::vector<int> seen;
  for (const auto& axis : ways)
    for (const Way& w : axis) {
      if (std::find(seen.begin(), seen.end(), w.index) != seen.end()) return true;
      seen.push_back(w.index);
    }
  return false;
}

// v with its first `count` axes walked backwards.
ValueId reversed(Builder& b, ValueId v, size_t count) {
  const Shape shape = b.type(v).shape;
  const int64_t n = elements({shape.begin(), shape.begin() + count}).number();
  if (n == 1) return v;
  std::vector<double> backwards(n);
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  Shape rows(shape.begin() + count, shape.end());
  rows.insert(rows.begin(), Dim(n));
  const ValueId index = b.constant({{Dim(n)}, {Scalar::i32, nullptr}}, std::move(backwards));
  return b.reshape(b.gather(b.reshape(v, rows), index), shape);
}

// v, whose axes are the main indices of `axes`, among zeros where the windows begin.
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

// Whether a pad puts zeros only along axes that several indices walk, and none between elements.
bool surrounds_windows(const Graph& g, const Node& pad, const std::vector<std::vector<Way>>& ways) {
  for (size_t d = 0; d < ways.size(); ++d) {
    const bool grows = pad.type.shape[d] != g[pad.operands[0]].type.shape[d];
    if (pad.attributes.strides[d] != 1 || (ways[d].size() < 2 && grows)) return false;
  }
  return true;
}

}  // namespace

ValueId sum_of_windows(Reverse& r, ValueId v, ValueId gradient) {
  Builder& b = r.build;
  const Node node = b.graph[v];
  const Shape from = b.type(node.operands[0]).shape, to = node.type.shape;
  const std::vector<std::vector<Way>> ways = ways_of(node);
  if (has_diagonal(ways))
    throw user_error("no gradient: windows %{}{} read several axes by one index", v,
                     node.label.empty() ? "" : " (" + node.label + ")");
  // What is alike in all places of a window is added before it is repeated.
  if (b.graph[gradient].op == Op::broadcast_) {
    const ValueId narrow = b.graph[gradient].operands[0];
    if (b.type(narrow).shape.size() == to.size()) gradient = narrow;
  }
  const auto extent = [&](int j) { return b.type(gradient).shape[j]; };
  // The longest index is the main one.
  std::vector<Axis> axes;
  std::vector<int> order, summed;
  std::vector<bool> used(to.size());
  for (size_t d = 0; d < from.size(); ++d) {
    Axis axis{node.attributes.starts[d], {}, {}};
    for (const Way& w : ways[d]) {
      used[w.index] = true;
      const bool longer = axis.main.index < 0 || (to[w.index].is_number() && to[axis.main.index].is_number() &&
                                                  to[w.index].number() > to[axis.main.index].number());
      if (axis.main.index >= 0) axis.inside.push_back(longer ? axis.main : w);
      if (longer) axis.main = w;
    }
    for (const Way& w : axis.inside) order.push_back(w.index);
    axes.push_back(std::move(axis));
  }
  const auto inside = std::ssize(order);
  for (const Axis& a : axes)
    if (a.main.index >= 0) order.push_back(a.main.index);
  // Windows' indices in front, then one axis for each of the operand's.
  for (size_t j = 0; j < to.size(); ++j)
    if (!used[j]) summed.push_back(j);
  const auto stretched = [&](int j) { return extent(j) != to[j]; };
  for (const Axis& a : axes)
    if (a.main.index >= 0 && stretched(a.main.index)) {  // only windows may be alike
      gradient = b.broadcast(gradient, to);
      break;
    }
  ValueId p = gradient;
  if (!summed.empty()) {
    for (const int j : summed)
      if (stretched(j)) {
        p = b.broadcast(p, to);
        break;
      }
    p = b.reduce(p, Reduction::sum, summed);
  }
  std::vector<int> all = order;
  all.insert(all.end(), summed.begin(), summed.end());
  p = b.permute(p, all);
  Shape shape;
  for (std::ptrdiff_t k = 0; k < inside; ++k) shape.push_back(b.type(p).shape[k]);
  for (const Axis& a : axes) shape.push_back(a.main.index < 0 ? Dim(1) : to[a.main.index]);
  p = reversed(b, b.reshape(p, shape), inside);
  // Zeros between and around.
  std::vector<int64_t> starts(inside, 0), strides(inside, 1);
  Shape padded(shape.begin(), shape.begin() + inside), result = from, sizes = from;
  for (size_t d = 0; d < axes.size(); ++d) {
    const int64_t end = axes[d].end(to);
    starts.push_back(axes[d].start + end);
    strides.push_back(std::max<int64_t>(axes[d].main.stride, 1));
    padded.push_back(end == 0 ? from[d] : Dim(from[d].number() + end));
  }
  p = b.pad(p, padded, starts, strides);
  if (inside == 0) return b.reshape(p, from);
  for (std::ptrdiff_t k = 0; k < inside; ++k) sizes.push_back(to[order[k]]);
  const size_t rank = sizes.size();
  std::vector<int64_t> moves(padded.size() * rank, 0);
  for (std::ptrdiff_t k = 0; k < inside; ++k)
    if (padded[k] != Dim(1)) moves[k * rank + from.size() + k] = 1;
  for (size_t d = 0, k = 0; d < axes.size(); ++d) {
    const size_t row = (inside + d) * rank;
    moves[row + d] = 1;
    for (const Way& w : axes[d].inside) moves[row + from.size() + k++] = w.stride;
  }
  p = b.windows(p, std::vector<int64_t>(padded.size(), 0), moves, sizes);
  std::vector<int> last(inside);
  std::iota(last.begin(), last.end(), std::ssize(from));
  return b.reshape(b.reduce(p, Reduction::sum, last), from);
}

bool windows_gradient(Reverse& r, ValueId operand, const std::string& letters, ValueId other,
                      const std::string& of_other, ValueId gradient, const std::string& of_gradient) {
  Builder& b = r.build;
  if (b.graph[operand].op != Op::windows_) return false;
  const Node node = b.graph[operand];
  const Shape to = node.type.shape;
  const std::vector<std::vector<Way>> ways = ways_of(node);
  if (has_diagonal(ways)) return false;
  // Zeros around what the windows read get no gradient: of a pad, the elements inside alone.
  ValueId source = node.operands[0];
  std::vector<int64_t> around(ways.size(), 0);
  if (const Node& pad = b.graph[source]; pad.op == Op::pad_ && surrounds_windows(b.graph, pad, ways)) {
    around = pad.attributes.starts;
    source = pad.operands[0];
  }
  const Shape from = b.type(source).shape;
  const auto in = [](const std::string& list, char c) { return list.find(c) != std::string::npos; };
  // A window's elements are summed with the other factor, which does not know where the window lies.
  std::vector<Axis> axes;
  std::string windowed;
  bool overlaps = false;
  for (size_t d = 0; d < from.size(); ++d) {
    Axis axis{node.attributes.starts[d], {}, {}};
    if (ways[d].size() == 1) axis.main = ways[d][0];
    if (ways[d].size() > 1)
      for (const Way& w : ways[d]) {
        const char c = letters[w.index];
        const bool stays = in(of_gradient, c), is_shared = in(of_other, c);
        if (stays == is_shared || (stays && axis.main.index >= 0)) return false;
        if (stays) {
          axis.main = w;
        } else {
          axis.inside.push_back(w);
          windowed += c;
        }
      }
    if (ways[d].size() > 1 && axis.main.index < 0) return false;
    overlaps = overlaps || !axis.inside.empty();
    axes.push_back(std::move(axis));
  }
  if (!overlaps) return false;
  // The gradient among zeros, and windows over it: the index of a window's place becomes that of the element.
  std::vector<int64_t> starts(of_gradient.size(), 0), strides(of_gradient.size(), 1), begins(of_gradient.size(), 0);
  Shape padded = b.type(gradient).shape, sizes;
  std::string seen;
  std::vector<std::vector<int64_t>> moves;
  for (size_t g = 0; g < of_gradient.size(); ++g) {
    const auto place = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) {
      return !a.inside.empty() && letters[a.main.index] == of_gradient[g];
    });
    seen += of_gradient[g];
    moves.emplace_back(seen.size(), 0).back() = 1;
    if (place == axes.end()) {
      sizes.push_back(padded[g]);
      continue;
    }
    const size_t d = place - axes.begin();
    const int64_t end = place->end(to), offset = place->start + end - around[d];
    const int64_t last = (to[place->main.index].number() - 1) * place->main.stride;
    begins[g] = std::max<int64_t>(0, -offset);
    starts[g] = std::max<int64_t>(0, offset);
    strides[g] = place->main.stride;
    padded[g] = Dim(std::max(begins[g] + from[d].number() + end, starts[g] + last + 1));
    sizes.push_back(from[d]);
    for (const Way& w : place->inside) {
      seen += letters[w.index];
      sizes.push_back(to[w.index]);
      moves.back().push_back(w.stride);
    }
    place->start = 0;
    place->main.stride = 1;
  }
  std::vector<int64_t> rows;
  for (std::vector<int64_t>& row : moves) {
    row.resize(seen.size(), 0);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const ValueId among = b.pad(gradient, padded, starts, strides);
  const ValueId views = b.windows(among, begins, rows, sizes);
  // The other factor backwards.
  std::string order = windowed;
  for (const char c : of_other)
    if (!in(windowed, c)) order += c;
  std::vector<int> axis_of;
  for (const char c : order) axis_of.push_back(of_other.find(c));
  const ValueId backwards = reversed(b, b.permute(other, axis_of), windowed.size());
  std::string result;
  Shape shape;
  for (const Axis& a : axes) {
    if (a.main.index >= 0) result += letters[a.main.index];
    shape.push_back(a.main.index < 0 ? Dim(1) : a.inside.empty() ? to[a.main.index] : from[shape.size()]);
  }
  ValueId sum = b.contract(views, backwards, seen, order, result);
  sum = b.convert(sum, b.type(source).element.scalar);
  r.add(source, placed(b, b.reshape(sum, shape), axes, from));
  return true;
}

}  // namespace lumen::graph
