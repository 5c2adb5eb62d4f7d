#include "graph/fuse/partition.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::graph {

Partition::Partition(const Graph& g) : g_(g), users_(users_of(g)), cluster_(g.nodes.size(), -1) {
  for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
    if (!is_compute(g_, v)) continue;
    if (g_[v].op == Op::result_) {  // the scan writes its results
      cluster_[v] = cluster_[g_[v].operands[0]];
      clusters_[cluster_[v]].nodes.push_back(v);
      continue;
    }
    Cluster c;
    c.nodes = {v};
    if (g_[v].op == Op::map_ || g_[v].op == Op::random_) {
      c.shape = KernelShape::map;
    } else {
      c.root = v;
      if (g_[v].op == Op::reduce_) c.shape = KernelShape::reduce;
      if (is_product(g_[v].op)) c.shape = KernelShape::dot;
    }
    cluster_[v] = size();
    order_.push_back(size());
    place_.push_back(size());
    clusters_.push_back(std::move(c));
  }
  // Edges: from the producer of a value to its readers, and from the readers of a state's old value to its update.
  const std::vector<ValueId> updated = updates_of(g_);
  for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
    if (cluster_[v] < 0) continue;
    for (ValueId o : g_[v].operands) {
      const ValueId below = read_below(g_, o);
      if (below < 0) continue;
      if (cluster_[below] >= 0) edge(cluster_[below], cluster_[v]);
      if (updated[below] >= 0) edge(cluster_[v], cluster_[updated[below]]);
    }
  }
}

void Partition::edge(int from, int to) {
  if (from == to) return;
  clusters_[from].next.insert(to);
  clusters_[to].previous.insert(from);
}

bool Partition::feeds_update(ValueId v) const {
  return std::any_of(users_[v].begin(), users_[v].end(), [&](ValueId u) { return u >= 0 && g_[u].op == Op::update_; });
}

// The clusters of a set can be merged if no path leaves the set and comes back. Such a path stays before the set's last
// member in `order_`, so only those clusters are searched; `after` receives those of them that are reachable from the
// set.
bool Partition::convex(const std::set<int>& members, int last, std::set<int>* after) const {
  std::vector<int> stack(members.begin(), members.end());
  while (!stack.empty()) {
    const int c = stack.back();
    stack.pop_back();
    for (int n : clusters_[c].next) {
      if (members.contains(n)) {
        if (members.contains(c)) continue;
        return false;
      }
      if (place_[n] <= last && after->insert(n).second) stack.push_back(n);
    }
  }
  return true;
}

// Keeps order_ topological: within [first, last], clusters that do not depend on the set come before it, the others
// after it.
void Partition::reorder(const std::set<int>& members, int target, int first, int last, const std::set<int>& after) {
  std::vector<int> sorted, behind;
  for (int place = first; place <= last; ++place) {
    const int c = order_[place];
    if (c < 0 || members.contains(c)) continue;
    (after.contains(c) ? behind : sorted).push_back(c);
  }
  sorted.push_back(target);
  sorted.insert(sorted.end(), behind.begin(), behind.end());
  sorted.resize(static_cast<size_t>(last - first) + 1, -1);
  for (int place = first; place <= last; ++place) {
    order_[place] = sorted[place - first];
    if (order_[place] >= 0) place_[order_[place]] = place;
  }
}

bool Partition::attempt(const std::vector<ValueId>& nodes, Form form) {
  std::set<int> members;
  size_t count = 0;
  for (ValueId v : nodes) {
    if (members.insert(cluster_[v]).second) count += clusters_[cluster_[v]].nodes.size();
  }
  if (count != nodes.size()) return false;
  int first = size(), last = 0;
  for (int m : members) {
    first = std::min(first, place_[m]);
    last = std::max(last, place_[m]);
  }
  std::set<int> after;
  if (!convex(members, last, &after)) return false;
  const int target = *members.begin();
  reorder(members, target, first, last, after);
  replace(members, target);
  Cluster& merged = clusters_[target];
  merged.nodes = nodes;
  std::sort(merged.nodes.begin(), merged.nodes.end());
  merged.shape = form.shape;
  merged.root = form.root;
  for (ValueId v : nodes) cluster_[v] = target;
  return true;
}

// Moves the edges of `members` to `target` and clears the others.
void Partition::replace(const std::set<int>& members, int target) {
  for (int m : members) {
    for (int n : clusters_[m].next) {
      clusters_[n].previous.erase(m);
      if (!members.contains(n)) edge(target, n);
    }
    for (int p : clusters_[m].previous) {
      clusters_[p].next.erase(m);
      if (!members.contains(p)) edge(p, target);
    }
    if (m != target) clusters_[m] = {};
  }
  for (int m : members) {
    clusters_[target].next.erase(m);
    clusters_[target].previous.erase(m);
  }
}

void Partition::verify_or_die(std::string_view after) const {
  size_t held = 0, computed = 0;
  for (int c = 0; c < size(); ++c) {
    const Cluster& cluster = clusters_[c];
    if (cluster.nodes.empty()) continue;
    held += cluster.nodes.size();
    LUMEN_CHECK(std::is_sorted(cluster.nodes.begin(), cluster.nodes.end()), "after {}: a cluster out of order", after);
    LUMEN_CHECK(cluster.root < 0 || cluster_[cluster.root] == c, "after {}: %{} is the root of another cluster", after,
                cluster.root);
    for (ValueId v : cluster.nodes) LUMEN_CHECK(cluster_[v] == c, "after {}: %{} is in two clusters", after, v);
    for (int n : cluster.next)
      LUMEN_CHECK(!clusters_[n].nodes.empty() && place_[c] < place_[n],
                  "after {}: the cluster of %{} waits for that of %{}, and the other way round", after,
                  cluster.nodes[0], clusters_[n].nodes.empty() ? -1 : clusters_[n].nodes[0]);
  }
  for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) computed += is_compute(g_, v) ? 1 : 0;
  LUMEN_CHECK(held == computed, "after {}: clusters hold {} of {} nodes", after, held, computed);
}

}  // namespace lumen::graph
