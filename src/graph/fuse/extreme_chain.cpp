#include "graph/fuse/extreme_chain.h"

namespace lumen::graph {

std::vector<ValueId> extreme_chain(const Partition& p, ValueId u, const Shape& shape) {
  const Graph& g = p.graph();
  const auto is_f32 = [&](ValueId v) { return g[v].type.element == Element{}; };
  const auto only_user = [&](ValueId v) { return p.users()[v].size() == 1 ? p.users()[v][0] : -1; };
  std::vector<ValueId> out;
  if (g[u].op == Op::map_) {
    if (g[u].operands.size() != 1 || g[u].type.shape != shape || !is_f32(u) || !p.is_alone(u)) return {};
    out.push_back(u);
    u = only_user(u);
  }
  for (int k = 0; k < 2 && u >= 0 && g[u].op == Op::reduce_; ++k, u = only_user(u)) {
    const Reduction way = g[u].attributes.reduction;
    if (way == Reduction::sum || !is_f32(u) || !p.is_alone(u)) return {};
    if (k > 0 && way != g[out.back()].attributes.reduction) return {};
    out.push_back(u);
    if (elements(g[u].type.shape) == Dim(1)) return out;
  }
  return {};
}

}  // namespace lumen::graph
