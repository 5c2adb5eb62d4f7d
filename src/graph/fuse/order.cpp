// order_groups: clusters become groups in an order that respects data and states, close to the graph's own; updates run
// as early as possible, to free gradients. Proved by tests/graph/fuse_test.cpp.
#include <algorithm>
#include <functional>
#include <queue>

#include "base/check.h"
#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// Whether a node outside the cluster reads v. The casts of a product's cluster read it through views.
bool is_read_elsewhere(const Partition& p, ValueId v, int cluster) {
  return std::ranges::any_of(p.users()[v], [&](ValueId u) {
    if (u < 0) return true;
    if (is_view(p.graph()[u].op) && p.clusters()[cluster].shape == KernelShape::dot)
      return is_read_elsewhere(p, u, cluster);
    return p.cluster_of(u) != cluster;
  });
}

Group group_of(const Partition& p, const Cluster& c) {
  const Graph& g = p.graph();
  Group group;
  group.shape = c.shape;
  group.root = c.root;
  std::set<ValueId> nodes(c.nodes.begin(), c.nodes.end());
  const auto add_input = [&](ValueId v) {
    if (std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) group.inputs.push_back(v);
  };
  for (ValueId v : c.nodes) {
    for (ValueId o : g[v].operands) {
      while (is_view(g[o].op) || is_unpack(g, o)) {
        nodes.insert(o);
        o = g[o].operands[0];
      }
      if (is_splat(g[o]) || g[o].op == Op::iota_) {
        nodes.insert(o);
      } else if (!nodes.contains(o)) {
        add_input(o);
      }
    }
    const bool is_load = (c.shape == KernelShape::attend && g[v].op == Op::gather_) ||  // see with_gathers
                         (c.shape == KernelShape::dot && g[v].op == Op::pad_);          // see group_windows
    const bool is_encoded = c.shape == KernelShape::move && g[v].op == Op::map_;        // see grow_codes
    const bool escapes = !is_load && !is_encoded && is_read_elsewhere(p, v, p.cluster_of(v));
    if (escapes || g[v].op == Op::update_) group.results.push_back(v);
  }
  group.nodes.assign(nodes.begin(), nodes.end());
  return group;
}

// A product is ordered by the last of its inputs. The nodes its epilogue ends in may come much later, like sums over
// batches, and until then both operands would have to be kept.
ValueId turn_of_product(const Partition& p, const Cluster& c) {
  const Graph& g = p.graph();
  ValueId last = c.root;
  for (const ValueId v : c.nodes) {
    for (ValueId o : g[v].operands) {
      while (is_view(g[o].op)) o = g[o].operands[0];
      if (!g[o].operands.empty() && p.cluster_of(o) != p.cluster_of(c.root)) last = std::max(last, o);
    }
  }
  return last;
}

}  // namespace

std::vector<Group> order_groups(const Partition& p) {
  const Graph& g = p.graph();
  const int size = p.clusters().size();
  std::vector<int> order;
  std::vector<size_t> waiting(p.clusters().size());
  using Entry =
      std::pair<ValueId, int>;  // by the last node: close to the graph's own order; updates early, to free gradients
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto turn = [&](const Cluster& c) {
    const bool writes_states = std::all_of(c.nodes.begin(), c.nodes.end(), [&](ValueId v) {
      return g[v].op == Op::update_ || std::all_of(p.users()[v].begin(), p.users()[v].end(), [&](ValueId u) {
               return u >= 0 && p.cluster_of(u) == p.cluster_of(v);
             });
    });
    if (writes_states) return -1;
    if (c.root >= 0 && is_product(g[c.root].op)) return turn_of_product(p, c);
    return c.shape == KernelShape::move ? c.root : c.nodes.back();  // transposed codes are often needed much later
  };
  size_t total = 0;
  for (int c = 0; c < size; ++c) {
    if (p.clusters()[c].nodes.empty()) continue;
    ++total;
    waiting[c] = p.clusters()[c].previous.size();
    if (waiting[c] == 0) ready.emplace(turn(p.clusters()[c]), c);
  }
  while (!ready.empty()) {
    const int c = ready.top().second;
    ready.pop();
    order.push_back(c);
    for (int n : p.clusters()[c].next) {
      if (--waiting[n] == 0) ready.emplace(turn(p.clusters()[n]), n);
    }
  }
  LUMEN_CHECK(order.size() == total, "groups wait for each other in a circle");
  std::vector<Group> ordered;
  for (const int c : beside_exchanges(p, order)) ordered.push_back(group_of(p, p.clusters()[c]));
  return ordered;
}

ValueId subject(const Graph& g, const Group& group) {
  for (const ValueId v : group.nodes)
    if (g[v].op == Op::gather_ || g[v].op == Op::scatter_add_ || g[v].op == Op::update_) return v;
  return group.root >= 0 ? group.root : group.results.back();
}

}  // namespace lumen::graph
