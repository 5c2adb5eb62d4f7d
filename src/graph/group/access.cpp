#include "graph/group/access.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::graph {

int64_t product(const std::vector<int64_t>& x) {
  int64_t p = 1;
  for (const int64_t e : x) p *= e;
  return p;
}

std::vector<int64_t> own_strides_of(const std::vector<int64_t>& extents) {
  std::vector<int64_t> strides = dense_strides_of(extents);
  for (size_t d = 0; d < extents.size(); ++d)
    if (extents[d] == 1) strides[d] = 0;
  return strides;
}

bool reads_memory(const Group& group, ValueId v) {
  return std::find(group.inputs.begin(), group.inputs.end(), v) != group.inputs.end();
}

bool is_load(const Plan& plan, const Group& group, ValueId v) {
  const Op op = plan.graph[v].op;
  return reads_memory(group, v) || is_view(op) || op == Op::iota_ || op == Op::constant_ || op == Op::input_ ||
         (is_unpack(plan.graph, v) && !plan.graph[v].type.element.format);
}

Access follow(const Plan& plan, const Group& group, ValueId v) {
  std::optional<Access> access = affine_access(plan.graph, v, group.inputs);
  LUMEN_CHECK(access.has_value(), "a reshape inside a group is not affine");
  const std::vector<int64_t> shape = extents_of(plan.graph[v].type.shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) access->strides[d] = 0;
  return *std::move(access);
}

Access follow_to(const Plan& plan, const Group& group, ValueId v, const std::vector<int64_t>& target) {
  return broadcast(follow(plan, group, v), extents_of(plan.graph[v].type.shape), target);
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

}  // namespace lumen::graph
