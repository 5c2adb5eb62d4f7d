#include "kernel/synth/step/access.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;

std::vector<int64_t> extents_of(const graph::Shape& s) {
  std::vector<int64_t> out;
  for (const graph::Dim& d : s) out.push_back(d.number());
  return out;
}

std::vector<int64_t> dense_strides_of(const std::vector<int64_t>& extents) {
  std::vector<int64_t> out(extents.size());
  int64_t step = 1;
  for (size_t d = extents.size(); d-- > 0;) {
    out[d] = step;
    step *= extents[d];
  }
  return out;
}

std::vector<int64_t> own_strides_of(const std::vector<int64_t>& extents) {
  std::vector<int64_t> strides = dense_strides_of(extents);
  for (size_t d = 0; d < extents.size(); ++d)
    if (extents[d] == 1) strides[d] = 0;
  return strides;
}

int64_t product(const std::vector<int64_t>& x) {
  int64_t p = 1;
  for (const int64_t e : x) p *= e;
  return p;
}

namespace {

bool is_view(Op op) {
  return op == Op::reshape_ || op == Op::permute_ || op == Op::broadcast_ || op == Op::slice_;
}

// Strides of a reshaped view, or nothing: runs of old and new axes of equal size correspond; the old ones must lie one
// after another.
std::optional<std::vector<int64_t>> reshape_strides(const std::vector<int64_t>& from,
                                                    const std::vector<int64_t>& strides,
                                                    const std::vector<int64_t>& to) {
  std::vector<int64_t> old_extents, old_strides;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] == 1) continue;
    old_extents.push_back(from[d]);
    old_strides.push_back(strides[d]);
  }
  std::vector<int64_t> out(to.size(), 0);
  size_t i = 0, j = 0;
  while (j < to.size()) {
    if (to[j] == 1) {
      ++j;
      continue;
    }
    if (i >= old_extents.size()) return std::nullopt;
    size_t i_end = i + 1, j_end = j + 1;
    int64_t a = old_extents[i], c = to[j];
    while (a != c) {
      if (a < c) {
        if (i_end >= old_extents.size()) return std::nullopt;
        a *= old_extents[i_end++];
      } else {
        if (j_end >= to.size()) return std::nullopt;
        c *= to[j_end++];
      }
    }
    for (size_t k = i; k + 1 < i_end; ++k)
      if (old_strides[k] != old_strides[k + 1] * old_extents[k + 1]) return std::nullopt;
    int64_t step = old_strides[i_end - 1];
    for (size_t k = j_end; k-- > j;) {
      out[k] = step;
      step *= to[k];
    }
    i = i_end;
    j = j_end;
  }
  return out;
}

}  // namespace

bool is_input(const graph::Group& group, graph::ValueId v) {
  return std::ranges::find(group.inputs, v) != group.inputs.end();
}

bool is_load(const graph::Plan& plan, const graph::Group& group, graph::ValueId v) {
  if (is_input(group, v)) return true;
  const Node& n = plan.graph[v];
  if (is_view(n.op) || n.op == Op::iota_ || n.op == Op::constant_ || n.op == Op::input_) return true;
  return n.op == Op::cast_ && !n.type.element.format && plan.graph[n.operands[0]].type.element.format;
}

Access follow(const graph::Plan& plan, const graph::Group& group, graph::ValueId v) {
  const Node& n = plan.graph[v];
  const std::vector<int64_t> shape = extents_of(n.type.shape);
  if (is_input(group, v) || !is_view(n.op)) return {v, 0, own_strides_of(shape)};
  const Access inner = follow(plan, group, n.operands[0]);
  const std::vector<int64_t> from = extents_of(plan.graph[n.operands[0]].type.shape);
  Access out{inner.source, inner.offset, std::vector<int64_t>(shape.size(), 0)};
  switch (n.op) {
    case Op::permute_:
      for (size_t d = 0; d < shape.size(); ++d) out.strides[d] = inner.strides[n.attributes.axes[d]];
      break;
    case Op::broadcast_: {
      const size_t lead = shape.size() - from.size();
      for (size_t d = 0; d < from.size(); ++d)
        if (from[d] == shape[lead + d]) out.strides[lead + d] = inner.strides[d];
      break;
    }
    case Op::slice_:
      for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t step = n.attributes.strides.empty() ? 1 : n.attributes.strides[d];
        const int64_t start = n.attributes.starts.empty() ? 0 : n.attributes.starts[d];
        out.offset += start * inner.strides[d];
        out.strides[d] = inner.strides[d] * step;
      }
      break;
    default: {
      const auto strides = reshape_strides(from, inner.strides, shape);
      LUMEN_CHECK(strides.has_value(), "a reshape inside a group is not affine");
      out.strides = *strides;
    }
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) out.strides[d] = 0;
  return out;
}

Access follow_to(const graph::Plan& plan, const graph::Group& group, graph::ValueId v,
                 const std::vector<int64_t>& target) {
  const Access a = follow(plan, group, v);
  const std::vector<int64_t> shape = extents_of(plan.graph[v].type.shape);
  LUMEN_CHECK(shape.size() <= target.size(), "rank {} read at rank {}", shape.size(), target.size());
  Access out{a.source, a.offset, std::vector<int64_t>(target.size(), 0)};
  const size_t lead = target.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    LUMEN_CHECK(shape[d] == target[lead + d] || shape[d] == 1, "extent {} read at extent {}", shape[d],
                target[lead + d]);
    if (shape[d] != 1) out.strides[lead + d] = a.strides[d];
  }
  return out;
}

Collapsed collapse(const std::vector<int64_t>& extents, const std::vector<std::vector<int64_t>>& strides,
                   const std::vector<bool>& barrier) {
  Collapsed out;
  out.strides.resize(strides.size());
  bool may_merge = true;  // no barrier since the last axis kept
  for (size_t d = 0; d < extents.size(); ++d) {
    if (extents[d] != 1) {
      bool merge = !out.extents.empty() && may_merge;
      for (size_t a = 0; merge && a < strides.size(); ++a) merge = out.strides[a].back() == strides[a][d] * extents[d];
      if (merge) {
        out.extents.back() *= extents[d];
        for (size_t a = 0; a < strides.size(); ++a) out.strides[a].back() = strides[a][d];
      } else {
        out.extents.push_back(extents[d]);
        out.first_axis.push_back(d);
        for (size_t a = 0; a < strides.size(); ++a) out.strides[a].push_back(strides[a][d]);
      }
      may_merge = true;
    }
    if (d < barrier.size() && barrier[d]) may_merge = false;
  }
  if (out.extents.empty()) {
    out.extents.push_back(1);
    out.first_axis.push_back(-1);
    for (auto& s : out.strides) s.push_back(0);
  }
  return out;
}

}  // namespace lumen::synth
