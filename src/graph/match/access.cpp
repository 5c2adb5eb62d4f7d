#include "graph/match/access.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lumen::graph {

namespace {

using Extents = std::vector<int64_t>;

// Strides of the same elements under another shape. Axes of extent 1 carry no information; the others are cut into runs
// of equal element count, and the old axes of a run must be contiguous.
std::optional<Extents> reshape_strides(const Extents& from, const Extents& strides, const Extents& to) {
  Extents result(to.size(), 0);
  size_t f = 0, t = 0;
  for (;;) {
    while (f < from.size() && from[f] == 1) ++f;
    while (t < to.size() && to[t] == 1) ++t;
    if (f == from.size() && t == to.size()) return result;
    LUMEN_CHECK(f < from.size() && t < to.size(), "a reshape changes the number of elements");
    size_t f_end = f + 1, t_end = t + 1;
    int64_t old_count = from[f], new_count = to[t];
    int64_t stride = strides[f];  // of the run's fastest axis so far
    while (old_count != new_count) {
      if (old_count < new_count) {
        LUMEN_CHECK(f_end < from.size(), "a reshape changes the number of elements");
        if (from[f_end] != 1) {
          if (stride != strides[f_end] * from[f_end]) return std::nullopt;
          stride = strides[f_end];
          old_count *= from[f_end];
        }
        ++f_end;
      } else {
        LUMEN_CHECK(t_end < to.size(), "a reshape changes the number of elements");
        new_count *= to[t_end++];
      }
    }
    for (size_t d = t_end; d-- > t; stride *= to[d]) result[d] = to[d] == 1 ? 0 : stride;
    f = f_end;
    t = t_end;
  }
}

std::optional<Access> step(const Graph& g, ValueId v, Access below) {
  const Node& node = g[v];
  const Shape& operand_shape = g[node.operands[0]].type.shape;
  Access a{below.source, below.offset, {}};
  switch (node.op) {
    case Op::permute_:
      for (int axis : node.attributes.axes) a.strides.push_back(below.strides[axis]);
      return a;
    case Op::broadcast_: {
      const Extents from = extents_of(operand_shape);
      const size_t shift = node.type.shape.size() - from.size();
      a.strides.assign(node.type.shape.size(), 0);
      for (size_t d = 0; d < from.size(); ++d) a.strides[d + shift] = from[d] == 1 ? 0 : below.strides[d];
      return a;
    }
    case Op::slice_:
      for (size_t d = 0; d < below.strides.size(); ++d) {
        a.offset += node.attributes.starts[d] * below.strides[d];
        a.strides.push_back(below.strides[d] * node.attributes.strides[d]);
      }
      return a;
    case Op::windows_: {
      const size_t rank = node.type.shape.size();
      a.strides.assign(rank, 0);
      for (size_t d = 0; d < below.strides.size(); ++d) {
        a.offset += node.attributes.starts[d] * below.strides[d];
        for (size_t j = 0; j < rank; ++j) a.strides[j] += below.strides[d] * node.attributes.strides[d * rank + j];
      }
      return a;
    }
    case Op::reshape_: {
      auto strides = reshape_strides(extents_of(operand_shape), below.strides, extents_of(node.type.shape));
      if (!strides) return std::nullopt;
      a.strides = std::move(*strides);
      return a;
    }
    default:
      LUMEN_UNREACHABLE("{} is no view", op_info(node.op).name);
  }
}

}  // namespace

bool is_view(Op op) {
  return op == Op::reshape_ || op == Op::permute_ || op == Op::broadcast_ || op == Op::slice_ || op == Op::windows_;
}

int plain_index(const Graph& g, const Node& windows, int axis) {
  const size_t rank = windows.type.shape.size();
  if (windows.attributes.starts[axis] != 0) return -1;
  int found = -1;
  for (size_t j = 0; j < rank; ++j) {
    if (windows.attributes.strides[axis * rank + j] == 0) continue;
    if (found >= 0 || windows.attributes.strides[axis * rank + j] != 1) return -1;
    found = j;
  }
  if (found < 0 || windows.type.shape[found] != g[windows.operands[0]].type.shape[axis]) return -1;
  for (size_t d = 0; d < windows.attributes.starts.size(); ++d)
    if (std::cmp_not_equal(d, axis) && windows.attributes.strides[d * rank + found] != 0) return -1;
  return found;
}

std::vector<bool> unwritten(const Graph& g) {
  std::vector<bool> out;
  for (const Node& node : g.nodes) {
    out.push_back(node.op == Op::input_ && (node.attributes.role == Role::parameter || node.type.element.format));
    if (node.op != Op::update_) continue;
    ValueId state = node.operands[0];
    while (g[state].op == Op::update_) state = g[state].operands[0];
    out[state] = false;
  }
  return out;
}

bool is_splat(const Node& node) {
  return node.op == Op::constant_ && node.attributes.data.size() == 1;
}

bool is_unpack(const Graph& g, ValueId v) {
  return g[v].op == Op::cast_ && g[g[v].operands[0]].type.element.format != nullptr;
}

std::vector<int64_t> extents_of(const Shape& shape) {
  Extents n;
  for (const Dim& d : shape) n.push_back(d.number());
  return n;
}

std::vector<int64_t> dense_strides_of(const std::vector<int64_t>& extents) {
  Extents strides(extents.size(), 1);
  for (size_t d = extents.size(); d-- > 1;) strides[d - 1] = strides[d] * extents[d];
  return strides;
}

std::optional<Access> affine_access(const Graph& g, ValueId v, const std::vector<ValueId>& stops) {
  std::vector<ValueId> chain;
  for (; is_view(g[v].op) && std::find(stops.begin(), stops.end(), v) == stops.end(); v = g[v].operands[0])
    chain.push_back(v);
  std::optional<Access> access = Access{v, 0, dense_strides_of(extents_of(g[v].type.shape))};
  for (size_t k = chain.size(); k-- > 0 && access;) access = step(g, chain[k], std::move(*access));
  return access;
}

Access broadcast(const Access& a, const std::vector<int64_t>& own, const std::vector<int64_t>& target) {
  LUMEN_CHECK(own.size() <= target.size(), "rank {} read at rank {}", own.size(), target.size());
  Access out{a.source, a.offset, Extents(target.size(), 0)};
  const size_t lead = target.size() - own.size();
  for (size_t d = 0; d < own.size(); ++d) {
    if (own[d] == 1) continue;
    LUMEN_CHECK(own[d] == target[lead + d], "extent {} read at extent {}", own[d], target[lead + d]);
    out.strides[lead + d] = a.strides[d];
  }
  return out;
}

std::optional<GatheredAccess> gathered_access(const Graph& g, ValueId v) {
  const std::optional<Access> seen = affine_access(g, v);
  if (!seen || g[seen->source].op != Op::gather_) return std::nullopt;
  const Node& gather = g[seen->source];
  const std::optional<Access> table = affine_access(g, gather.operands[0]);
  const std::optional<Access> index = affine_access(g, gather.operands[1]);
  if (!table || !index) return std::nullopt;
  const Extents shape = extents_of(gather.type.shape), dense = dense_strides_of(shape);
  const Extents own = extents_of(g[v].type.shape);
  const size_t lead = index->strides.size();
  GatheredAccess out;
  out.gather = seen->source;
  out.rows = {table->source, table->offset, Extents(own.size(), 0)};
  out.index = {index->source, index->offset, Extents(own.size(), 0)};
  out.stride = table->strides[0];
  out.count = g[gather.operands[0]].type.shape[0].number();
  // The first element, axis by axis of the gather's result.
  Extents start(shape.size(), 0);
  int64_t rest = seen->offset;
  for (size_t d = 0; d < shape.size(); ++d) {
    start[d] = rest / dense[d];
    rest %= dense[d];
    if (d < lead) {
      out.index.offset += start[d] * index->strides[d];
    } else {
      out.rows.offset += start[d] * table->strides[1 + d - lead];
    }
  }
  for (size_t e = 0; e < own.size(); ++e) {
    if (own[e] == 1 || seen->strides[e] == 0) continue;
    size_t d = 0;
    while (d < shape.size() && (shape[d] == 1 || dense[d] > seen->strides[e])) ++d;
    if (d == shape.size() || seen->strides[e] % dense[d] != 0) return std::nullopt;
    const int64_t step = seen->strides[e] / dense[d];
    if (start[d] + (own[e] - 1) * step >= shape[d]) return std::nullopt;  // spans more than one axis
    (d < lead ? out.index : out.rows).strides[e] = step * (d < lead ? index->strides[d] : table->strides[1 + d - lead]);
  }
  return out;
}

}  // namespace lumen::graph
