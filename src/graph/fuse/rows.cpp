// group_reductions and group_rows: maps and reductions over the same rows become one group, as far as the contract of
// row kernels allows (form.cpp). Proved by tests/graph/pass/group_rows.txt and tests/graph/fuse_test.cpp.
#include "graph/fuse/fuse.h"

namespace lumen::graph {

namespace {

// A map that only a reduction reads joins it, before its producer can absorb the map and write it to memory.
void grow_reduce(Partition& p, ValueId v) {
  const Graph& g = p.graph();
  const ValueId o = g[v].operands[0];
  if (p.cluster_of(o) < 0 || g[o].op != Op::map_ || p.users()[o].size() != 1) return;
  if (!p.is_alone(o) || !p.is_alone(v)) return;
  if (const auto form = row_form(g, p.users(), {o, v})) p.attempt({o, v}, *form);
}

// A map that only an update reads joins it: merged with a reduction, it would be written to other memory first.
void grow_update(Partition& p, ValueId v) {
  const Graph& g = p.graph();
  if (g[v].operands.size() != 2) return;
  const ValueId value = g[v].operands[1];
  if (p.cluster_of(value) < 0 || g[value].op != Op::map_ || p.users()[value].size() != 1) return;
  if (!p.is_alone(value) || !p.is_alone(v)) return;
  if (const auto form = row_form(g, p.users(), {value, v})) p.attempt({value, v}, *form);
}

// One sweep over all uses of computed values; true when something merged.
bool merge_rows(Partition& p) {
  const Graph& g = p.graph();
  bool changed = false;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (p.cluster_of(v) < 0) continue;
    for (ValueId o : g[v].operands) {
      const int a = p.cluster_of(o), b = p.cluster_of(v);  // loads have no cluster
      if (a < 0 || a == b || !p.clusters()[a].is_row_like()) continue;
      if (!p.clusters()[b].is_row_like() && g[v].op != Op::update_) continue;
      // Recomputation from a reduction much earlier in the graph stays in its own group.
      if (p.clusters()[a].shape == KernelShape::reduce &&
          p.clusters()[b].nodes.front() - p.clusters()[a].nodes.back() > kFar)
        continue;
      std::vector<ValueId> nodes = p.clusters()[a].nodes;
      nodes.insert(nodes.end(), p.clusters()[b].nodes.begin(), p.clusters()[b].nodes.end());
      if (const auto form = row_form(g, p.users(), nodes)) changed = p.attempt(nodes, *form) || changed;
    }
  }
  return changed;
}

}  // namespace

void group_reductions(Partition& p) {
  for (ValueId v = 0; v < std::ssize(p.graph().nodes); ++v) {
    if (p.graph()[v].op == Op::reduce_) grow_reduce(p, v);
    if (p.graph()[v].op == Op::update_) grow_update(p, v);
  }
}

void group_rows(Partition& p) {
  while (merge_rows(p)) {
  }
}

}  // namespace lumen::graph
