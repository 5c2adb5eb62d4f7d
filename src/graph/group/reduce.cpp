#include "graph/group/reduce.h"

#include <algorithm>

namespace lumen::graph {

ReduceFacts::ReduceFacts(const Plan& plan, const Group& group) {
  const Graph& g = plan.graph;
  const Node& root = g[group.root];
  full = extents_of(g[root.operands[0]].type.shape);
  kept = extents_of(root.type.shape);
  is_reduced.assign(full.size(), false);
  for (const int axis : root.attributes.axes) is_reduced[axis < 0 ? axis + static_cast<int>(full.size()) : axis] = true;
  is_trivial = full == kept;
  for (size_t d = 1; d < full.size(); ++d)
    if (full[d] == 1) is_reduced[d] = is_reduced[d - 1];
  for (size_t d = full.size(); d-- > 1;)
    if (full[d - 1] == 1) is_reduced[d - 1] = is_reduced[d];
  int last_level = 0;
  for (const ValueId v : group.nodes) {
    if (is_load(plan, group, v)) continue;
    const Node& n = g[v];
    int own = 0;
    for (const ValueId a : n.operands)
      if (const auto found = level.find(a); found != level.end()) own = std::max(own, found->second);
    if (n.op == Op::reduce_) {
      level[v] = own + 1;
      reduces.push_back(v);
      last_level = std::max(last_level, own + 1);
      continue;
    }
    level[v] = own;
    const bool is_full = extents_of(n.type.shape) == full;
    (is_full ? full_maps : kept_maps).push_back(v);
    if (is_full && own > 0) is_dependent = true;
  }
  passes = last_level;
  for (const ValueId r : group.results) {
    const bool is_full = extents_of(g[r].type.shape) == full;
    (is_full ? full_results : kept_results).push_back(r);
    if (is_full && level.contains(r)) passes = std::max(passes, level[r] + 1);
  }
}

std::vector<bool> ReduceFacts::barrier() const {
  std::vector<bool> out(full.size(), false);
  for (size_t d = 0; d + 1 < full.size(); ++d) out[d] = is_reduced[d] != is_reduced[d + 1];
  return out;
}

}  // namespace lumen::graph
