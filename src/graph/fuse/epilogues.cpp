// group_epilogues: a product absorbs maps of its shape that follow it: bias, activation, residual.
// Proved by tests/graph/pass/group_epilogues.txt and tests/graph/fuse_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"

namespace lumen::graph {

namespace {

// A map with one use and almost no memory reads, like the masks clone_masks copies to their users.
bool is_mask(const Partition& p, ValueId v, const Shape& shape) {
  const Graph& g = p.graph();
  const bool single = g[v].op == Op::map_ && g[v].type.shape == shape && p.users()[v].size() == 1 && p.is_alone(v);
  return single && std::all_of(g[v].operands.begin(), g[v].operands.end(), [&](ValueId o) {
           const ValueId below = read_below(g, o);
           return below < 0 || elements(g[below].type.shape) == Dim(1);
         });
}

// Absorbs maps of the contract's shape for as long as exactly the last one is used elsewhere.
void grow_epilogue(Partition& p, int c) {
  const Graph& g = p.graph();
  constexpr size_t kMaxEpilogue = 16;
  std::vector<ValueId> nodes = p.clusters()[c].nodes, best;
  const ValueId root = p.clusters()[c].root;
  const auto taken = [&](ValueId v) { return std::find(nodes.begin(), nodes.end(), v) != nodes.end(); };
  while (nodes.size() < kMaxEpilogue) {
    ValueId grown = -1;  // the first map that uses a node of the group
    for (ValueId v : nodes) {
      for (ValueId u : p.users()[v]) {
        const bool fits = u >= 0 && g[u].op == Op::map_ && g[u].type.shape == g[root].type.shape && !taken(u);
        if (fits && p.is_alone(u) && !p.feeds_update(u) && (grown < 0 || u < grown)) grown = u;
      }
    }
    if (grown < 0) break;
    nodes.push_back(grown);
    for (ValueId o : g[grown].operands) {
      if (!taken(o) && is_mask(p, o, g[root].type.shape)) nodes.insert(nodes.end() - 1, o);
    }
    const bool closed = std::all_of(nodes.begin(), nodes.end() - 1, [&](ValueId v) {
      return std::all_of(p.users()[v].begin(), p.users()[v].end(), taken);
    });
    if (closed) best = nodes;
  }
  if (!best.empty()) p.attempt(best, {KernelShape::dot, root});
}

}  // namespace

void group_epilogues(Partition& p) {
  // A map of several products joins the last one: in a chain of sums each product then accumulates onto the previous
  // sum.
  for (int c = p.clusters().size(); c-- > 0;) {
    if (p.clusters()[c].shape == KernelShape::dot) grow_epilogue(p, c);
  }
}

}  // namespace lumen::graph
