// group_siblings: groups of one kind that read the same tensor whole become one, and read it once. group_small: groups
// of few numbers that depend on no other group, or that no other group depends on, become one kernel launch: histories
// of scales (a step has one for every operand) and updates of short parameters.
// Proved by tests/graph/pass/group_siblings.txt, tests/graph/pass/group_small.txt and tests/graph/fuse_test.cpp.
#include <algorithm>
#include <map>
#include <tuple>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

// Equal maps are intentional (repeat_casts).
bool is_repeated(const Graph& g, const Cluster& a, const Cluster& b) {
  if (a.nodes.size() != 1 || b.nodes.size() != 1) return false;
  const Node &x = g[a.nodes[0]], &y = g[b.nodes[0]];
  return x.op == Op::map_ && y.op == Op::map_ && x.operands == y.operands && x.type == y.type &&
         x.attributes.formula == y.attributes.formula;
}

// kFew: the most numbers of each value that a small group reads or writes, because values that wait for the merged
// group stay in memory. kFewReduced: the most numbers that all reductions of a group read together, because one thread
// block processes them where rows are few.
constexpr int64_t kFew = 2048, kFewReduced = 32768;

// Few numbers; and as reductions only extremes, whose bits do not depend on the order.
bool is_small(const Partition& p, const Cluster& c) {
  const Graph& g = p.graph();
  const int64_t most = c.root >= 0 ? kFewReduced : kFew;
  const auto is_few = [&](ValueId v) { return elements(g[v].type.shape).number() <= most; };
  return c.is_row_like() && std::all_of(c.nodes.begin(), c.nodes.end(), [&](ValueId v) {
           if (g[v].op == Op::reduce_ && g[v].attributes.reduction == Reduction::sum) return false;
           return is_few(v) && std::all_of(g[v].operands.begin(), g[v].operands.end(), [&](ValueId o) {
                    const ValueId below = read_below(g, o);
                    return below < 0 || is_few(below);
                  });
         });
}

// By value: only states that small groups write depend on it.
std::vector<bool> followed_by_states(const Partition& p) {
  const Graph& g = p.graph();
  std::vector<bool> out(g.nodes.size(), false);
  for (ValueId v = g.nodes.size(); v-- > 0;) {
    if (p.cluster_of(v) >= 0 ? !is_small(p, p.around(v)) : !is_view(g[v].op)) continue;
    const std::vector<ValueId>& users = p.users()[v];
    out[v] = (g[v].op == Op::update_ || !users.empty()) &&
             std::all_of(users.begin(), users.end(), [&](ValueId u) { return u >= 0 && out[u]; });
  }
  return out;
}

bool reads_states_alone(const Partition& p, const Cluster& c) {
  const Graph& g = p.graph();
  return c.root >= 0 && std::all_of(c.nodes.begin(), c.nodes.end(), [&](ValueId v) {
           return std::all_of(g[v].operands.begin(), g[v].operands.end(), [&](ValueId o) {
             const ValueId below = read_below(g, o);
             if (below < 0 || p.cluster_of(below) == p.cluster_of(v)) return true;
             return g[below].op == Op::input_ && g[below].attributes.role == Role::state;
           });
         });
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
      // If they are far apart, the results of one of them would be kept long.
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

void group_small(Partition& p) {
  const Graph& g = p.graph();
  const std::vector<bool> followed = followed_by_states(p);
  // The last group of a kind: early or late, reductions or maps, by the shape it iterates over.
  std::map<std::tuple<bool, bool, std::vector<int64_t>>, ValueId> last;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (p.cluster_of(v) < 0 || p.around(v).nodes.front() != v) continue;
    const Cluster& c = p.around(v);
    const bool is_late = std::all_of(c.nodes.begin(), c.nodes.end(), [&](ValueId n) { return followed[n]; });
    if (!is_small(p, c) || (!is_late && !reads_states_alone(p, c))) continue;
    const ValueId at = c.root >= 0 ? g[c.root].operands[0] : v;
    const auto [known, is_first] = last.try_emplace({is_late, c.root >= 0, extents_of(g[at].type.shape)}, v);
    if (is_first) continue;
    std::vector<ValueId> nodes = p.around(known->second).nodes;
    nodes.insert(nodes.end(), c.nodes.begin(), c.nodes.end());
    int64_t reduced = 0;
    for (ValueId n : nodes)
      if (g[n].op == Op::reduce_) reduced += elements(g[g[n].operands[0]].type.shape).number();
    const auto form = reduced <= kFewReduced ? row_form(g, p.users(), nodes) : std::nullopt;
    if (!form || !p.attempt(nodes, *form)) known->second = v;
  }
}

}  // namespace lumen::graph
