// group_siblings: groups of one kind that read the same tensor whole become one, and read it once. Proved by
// tests/graph/pass/group_siblings.txt and tests/graph/fuse_test.cpp.
#include "graph/fuse/fuse.h"

namespace lumen::graph {

namespace {

// Equal maps are there on purpose (repeat_casts).
bool is_repeated(const Graph& g, const Cluster& a, const Cluster& b) {
  if (a.nodes.size() != 1 || b.nodes.size() != 1) return false;
  const Node &x = g[a.nodes[0]], &y = g[b.nodes[0]];
  return x.op == Op::map_ && y.op == Op::map_ && x.operands == y.operands && x.type == y.type &&
         x.attributes.formula == y.attributes.formula;
}

}  // namespace

void group_siblings(Partition& p) {
  const Graph& g = p.graph();
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    int first = -1;
    for (ValueId u : p.users()[v]) {
      if (u < 0 || p.cluster_of(u) < 0 || !p.around(u).is_row_like()) continue;
      if (g[u].op != Op::reduce_ && g[u].type.shape != g[v].type.shape) continue;
      if (first >= 0 && p.around(u).shape != p.clusters()[first].shape) continue;
      const int other = p.cluster_of(u);
      if (first < 0 || first == other) {
        first = other;
        continue;
      }
      if (is_repeated(g, p.clusters()[first], p.clusters()[other])) continue;
      // Far apart, what one of them writes would be kept long.
      if (p.clusters()[other].nodes.front() - p.clusters()[first].nodes.back() > kFar) {
        first = other;
        continue;
      }
      std::vector<ValueId> nodes = p.clusters()[first].nodes;
      nodes.insert(nodes.end(), p.clusters()[other].nodes.begin(), p.clusters()[other].nodes.end());
      const auto form = row_form(g, p.users(), nodes);
      if (form && p.attempt(nodes, *form)) first = p.cluster_of(u);
    }
  }
}

}  // namespace lumen::graph
