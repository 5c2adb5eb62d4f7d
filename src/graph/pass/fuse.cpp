// fuse: the graph is arranged so that loads keep the contract (arrange.cpp), every compute node becomes a cluster,
// clusters merge as long as the contract of a shape allows it and no cycle arises, and clusters become groups in an
// order that respects data and states. Proved by tests/graph/fuse_test.cpp.
#include <algorithm>
#include <functional>
#include <queue>
#include <set>

#include "base/check.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"
#include "graph/pass/partition.h"
#include "number/facts/facts.h"

namespace lumen::graph {

namespace {

struct Cluster {
  std::vector<ValueId> nodes;  // compute nodes, in graph order; empty once merged away
  KernelShape shape = KernelShape::move;
  ValueId root = -1;
  std::set<int> next, previous;  // clusters that must run after or before
};

class Partition {
 public:
  explicit Partition(const Graph& g)
      : g_(g), users_(users_of(g)), updated_(updates_of(g)), cluster_(g.nodes.size(), -1) {
    start();
    connect();
  }

  void merge_all() {
    for (const Attention& a : find_attention(g_, users_, 0, false)) {
      if (a.is_shared) continue;
      const Form form{KernelShape::attend, first_contract(a.nodes)};
      const auto merge = [&](const std::vector<ValueId>& nodes) {
        const std::vector<ValueId> with = with_gathers(nodes);
        return (with.size() != nodes.size() && attempt(with, form)) || attempt(nodes, form);
      };
      std::vector<ValueId> rounded = a.nodes;
      if (const ValueId cast = only_rounding(a.output); cast >= 0) rounded.push_back(cast);
      if (!merge(rounded) && rounded.size() != a.nodes.size()) merge(a.nodes);
    }
    for (const AttentionGradient& a : find_attention_gradients(g_, users_)) {
      attempt(a.nodes, {KernelShape::attend_gradient, a.root});
    }
    // The last product of a map takes it: in a chain of sums each product then adds to what came before it.
    for (int c = size(); c-- > 0;) {
      if (clusters_[c].shape == KernelShape::dot) grow_epilogue(c);
    }
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (g_[v].op == Op::map_) grow_codes(v);
      if (g_[v].op == Op::reduce_) grow_reduce(v);
    }
    for (bool changed = true; changed;) changed = merge_rows();
    merge_siblings();
  }

  std::vector<Group> groups() const;

 private:
  int size() const { return clusters_.size(); }

  void start() {
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (!is_compute(g_, v)) continue;
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
  }

  // Edges: from what computes a value to what reads it, and from what reads a state's old value to its update.
  void connect() {
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (cluster_[v] < 0) continue;
      for (ValueId o : g_[v].operands) {
        const ValueId below = read_below(g_, o);
        if (below < 0) continue;
        if (cluster_[below] >= 0) edge(cluster_[below], cluster_[v]);
        if (updated_[below] >= 0) edge(cluster_[v], cluster_[updated_[below]]);
      }
    }
  }
  void edge(int from, int to) {
    if (from == to) return;
    clusters_[from].next.insert(to);
    clusters_[to].previous.insert(from);
  }

  static bool row_like(const Cluster& c) { return c.shape == KernelShape::map || c.shape == KernelShape::reduce; }

  // Merging the clusters of a set is possible when no path leaves the set and comes back. Such a path stays before the
  // set's last member in `order_`, so only those clusters are searched; `after` receives what the set reaches among
  // them.
  bool convex(const std::set<int>& members, int last, std::set<int>* after) const {
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

  // Keeps order_ topological: within [first, last] what does not depend on the set comes before it, what does behind
  // it.
  void reorder(const std::set<int>& members, int target, int first, int last, const std::set<int>& after) {
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

  // Makes one cluster of whole clusters that hold `nodes`; false when that is impossible.
  bool attempt(const std::vector<ValueId>& nodes, Form form) {
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
    Cluster& merged = clusters_[target];
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
      merged.next.erase(m);
      merged.previous.erase(m);
    }
    merged.nodes = nodes;
    std::sort(merged.nodes.begin(), merged.nodes.end());
    merged.shape = form.shape;
    merged.root = form.root;
    for (ValueId v : nodes) cluster_[v] = target;
    return true;
  }

  ValueId first_contract(const std::vector<ValueId>& nodes) const {
    return *std::find_if(nodes.begin(), nodes.end(), [&](ValueId v) { return g_[v].op == Op::contract_; });
  }

  // The map that rounds v to a 16-bit float, where nothing else reads v; else -1.
  ValueId only_rounding(ValueId v) const {
    const ValueId u = users_[v].size() == 1 ? users_[v][0] : -1;
    if (u < 0 || g_[u].op != Op::map_ || g_[u].type.shape != g_[v].type.shape) return -1;
    const Formula& f = g_[u].attributes.formula;
    if (f.inputs.size() != 1 || f.outputs.size() != 1 || clusters_[cluster_[u]].nodes.size() != 1 || feeds_update(u))
      return -1;
    const ScalarNode& end = f.nodes[f.outputs[0]];
    const bool casts = end.op == ScalarOp::cast_ && is_float(end.type) && scalar_bits(end.type) == 16 &&
                       f.nodes[end.args[0]].op == ScalarOp::input;
    return casts ? u : -1;
  }

  // An attention and the gathers that find its keys and values, where it can read their tables itself.
  std::vector<ValueId> with_gathers(const std::vector<ValueId>& nodes) const {
    std::vector<ValueId> with = nodes;
    const auto inside = [&](ValueId u) { return std::find(nodes.begin(), nodes.end(), u) != nodes.end(); };
    const std::function<bool(ValueId)> is_ours = [&](ValueId v) {  // nobody else reads it, or a view of it
      return std::all_of(users_[v].begin(), users_[v].end(),
                         [&](ValueId u) { return u >= 0 && (inside(u) || (is_view(g_[u].op) && is_ours(u))); });
    };
    for (const ValueId v : nodes) {
      if (g_[v].op != Op::contract_) continue;
      const std::vector<std::string>& letters = g_[v].attributes.indices;
      const char key = inside(g_[v].operands[0]) ? letters[0].back() : letters[2].back();
      for (size_t i = 0; i < 2; ++i) {
        const ValueId o = g_[v].operands[i];
        const size_t at = letters[i].find(key);
        if (inside(o) || at == std::string::npos || g_[o].type.shape[at] == Dim(1)) continue;
        const auto gathered = gathered_access(g_, o);
        if (!gathered || !is_ours(gathered->gather)) continue;
        if (gathered->index.strides[at] == 0 || gathered->rows.strides[at] != 0) continue;
        if (read_below(g_, g_[gathered->gather].operands[0]) < 0 ||
            read_below(g_, g_[gathered->gather].operands[1]) < 0)
          continue;
        if (std::find(with.begin(), with.end(), gathered->gather) == with.end()) with.push_back(gathered->gather);
      }
    }
    return with;
  }

  // A map of one use that reads next to nothing, like the masks arrange clones into their users.
  bool is_mask(ValueId v, const Shape& shape) const {
    const bool single = g_[v].op == Op::map_ && g_[v].type.shape == shape && users_[v].size() == 1 &&
                        clusters_[cluster_[v]].nodes.size() == 1;
    return single && std::all_of(g_[v].operands.begin(), g_[v].operands.end(), [&](ValueId o) {
             const ValueId below = read_below(g_, o);
             return below < 0 || elements(g_[below].type.shape) == Dim(1);
           });
  }

  // A map with its update writes in place; as an epilogue it would need a copy.
  bool feeds_update(ValueId v) const {
    return std::any_of(users_[v].begin(), users_[v].end(),
                       [&](ValueId u) { return u >= 0 && g_[u].op == Op::update_; });
  }

  // Takes in maps of the contract's shape for as long as exactly the last one is used elsewhere.
  void grow_epilogue(int c) {
    constexpr size_t kMaxEpilogue = 16;
    std::vector<ValueId> nodes = clusters_[c].nodes, best;
    const ValueId root = clusters_[c].root;
    const auto taken = [&](ValueId v) { return std::find(nodes.begin(), nodes.end(), v) != nodes.end(); };
    while (nodes.size() < kMaxEpilogue) {
      ValueId grown = -1;  // the first map that uses what we have
      for (ValueId v : nodes) {
        for (ValueId u : users_[v]) {
          const bool fits = u >= 0 && g_[u].op == Op::map_ && g_[u].type.shape == g_[root].type.shape && !taken(u);
          if (fits && clusters_[cluster_[u]].nodes.size() == 1 && !feeds_update(u) && (grown < 0 || u < grown))
            grown = u;
        }
      }
      if (grown < 0) break;
      nodes.push_back(grown);
      for (ValueId o : g_[grown].operands) {
        if (!taken(o) && is_mask(o, g_[root].type.shape)) nodes.insert(nodes.end() - 1, o);
      }
      const bool closed = std::all_of(nodes.begin(), nodes.end() - 1, [&](ValueId v) {
        return std::all_of(users_[v].begin(), users_[v].end(), taken);
      });
      if (closed) best = nodes;
    }
    if (!best.empty()) attempt(best, {KernelShape::dot, root});
  }

  // A map that casts into bytes alone read, as it lies or transposed, joins them.
  void grow_codes(ValueId map) {
    if (clusters_[cluster_[map]].nodes.size() != 1) return;
    std::vector<ValueId> casts;
    if (!find_codes(map, &casts) || casts.empty() || casts.size() > 2) return;
    const auto is_straight = [&](ValueId cast) {
      return affine_access(g_, g_[cast].operands[0])->strides == dense_strides(g_[cast].type.shape);
    };
    if (casts.size() == 2 && is_straight(casts[0]) == is_straight(casts[1])) return;
    for (const ValueId c : casts)
      if (g_[c].type.element != g_[casts[0]].type.element) return;
    std::vector<ValueId> nodes = casts;
    nodes.push_back(map);
    attempt(nodes, {KernelShape::move, casts[0]});
  }

  // The casts that read v through views; false where something else does.
  bool find_codes(ValueId v, std::vector<ValueId>* casts) const {
    return std::all_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
      if (u < 0) return false;
      if (is_view(g_[u].op)) return find_codes(u, casts);
      if (!is_byte_cast(u)) return false;
      casts->push_back(u);
      return true;
    });
  }
  bool is_byte_cast(ValueId v) const {
    const Node& node = g_[v];
    if (node.op != Op::cast_ || !node.type.element.format || node.operands.size() != 1) return false;
    const FieldType* field = plain_field(*node.type.element.format);
    const auto access = affine_access(g_, node.operands[0]);
    if (!field || field->bits != 8 || !access || access->offset != 0 || node.type.shape.empty()) return false;
    const Shape &from = g_[access->source].type.shape, &to = node.type.shape;
    if (elements(from) != elements(to)) return false;
    if (access->strides == dense_strides(to)) return true;
    // Transposed: the last axes of the source are the columns, and the first axis here.
    if (to.size() != 2 || access->strides != std::vector<int64_t>{1, to[0].number()}) return false;
    int64_t columns = 1;
    for (size_t d = from.size(); d > 0 && columns < to[0].number(); --d) columns *= from[d - 1].number();
    return columns == to[0].number() && to[0].number() > 1 && to[1].number() > 1;
  }

  // A map that a reduction alone reads joins it, before what it reads may take it along and write it.
  void grow_reduce(ValueId v) {
    const ValueId o = g_[v].operands[0];
    if (cluster_[o] < 0 || g_[o].op != Op::map_ || users_[o].size() != 1) return;
    if (clusters_[cluster_[o]].nodes.size() != 1 || clusters_[cluster_[v]].nodes.size() != 1) return;
    if (const auto form = row_form(g_, users_, {o, v})) attempt({o, v}, *form);
  }

  // One sweep over all uses of computed values; true when something merged.
  bool merge_rows() {
    bool changed = false;
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      if (cluster_[v] < 0) continue;
      for (ValueId o : g_[v].operands) {
        const int a = cluster_[o], b = cluster_[v];  // loads have no cluster
        if (a < 0 || a == b || !row_like(clusters_[a])) continue;
        if (!row_like(clusters_[b]) && g_[v].op != Op::update_) continue;
        // What is computed anew from a reduction of long ago stays where it is.
        if (clusters_[a].shape == KernelShape::reduce && clusters_[b].nodes.front() - clusters_[a].nodes.back() > kFar)
          continue;
        std::vector<ValueId> nodes = clusters_[a].nodes;
        nodes.insert(nodes.end(), clusters_[b].nodes.begin(), clusters_[b].nodes.end());
        if (const auto form = row_form(g_, users_, nodes)) changed = attempt(nodes, *form) || changed;
      }
    }
    return changed;
  }

  // Groups of one kind that read the same tensor whole read it once.
  void merge_siblings() {
    for (ValueId v = 0; v < std::ssize(g_.nodes); ++v) {
      int first = -1;
      for (ValueId u : users_[v]) {
        if (u < 0 || cluster_[u] < 0 || !row_like(clusters_[cluster_[u]])) continue;
        if (g_[u].op != Op::reduce_ && g_[u].type.shape != g_[v].type.shape) continue;
        if (first >= 0 && clusters_[cluster_[u]].shape != clusters_[first].shape) continue;
        const int other = cluster_[u];
        if (first < 0 || first == other) {
          first = other;
          continue;
        }
        if (is_repeated(clusters_[first], clusters_[other])) continue;
        // Far apart, what one of them writes would be kept long.
        if (clusters_[other].nodes.front() - clusters_[first].nodes.back() > kFar) {
          first = other;
          continue;
        }
        std::vector<ValueId> nodes = clusters_[first].nodes;
        nodes.insert(nodes.end(), clusters_[other].nodes.begin(), clusters_[other].nodes.end());
        const auto form = row_form(g_, users_, nodes);
        if (form && attempt(nodes, *form)) first = cluster_[u];
      }
    }
  }

  // Equal maps are there on purpose (repeat_casts).
  bool is_repeated(const Cluster& a, const Cluster& b) const {
    if (a.nodes.size() != 1 || b.nodes.size() != 1) return false;
    const Node &x = g_[a.nodes[0]], &y = g_[b.nodes[0]];
    return x.op == Op::map_ && y.op == Op::map_ && x.operands == y.operands && x.type == y.type &&
           x.attributes.formula == y.attributes.formula;
  }

  Group group_of(const Cluster& c) const;

  const Graph& g_;
  Users users_;
  std::vector<ValueId> updated_;
  std::vector<int> cluster_;  // by value; -1 for what is not computed
  std::vector<Cluster> clusters_;
  std::vector<int> order_;  // clusters in an order that respects `next`; -1 where one was merged away
  std::vector<int> place_;  // of each cluster in order_
};

Group Partition::group_of(const Cluster& c) const {
  Group group;
  group.shape = c.shape;
  group.root = c.root;
  std::set<ValueId> nodes(c.nodes.begin(), c.nodes.end());
  const auto add_input = [&](ValueId v) {
    if (std::find(group.inputs.begin(), group.inputs.end(), v) == group.inputs.end()) group.inputs.push_back(v);
  };
  for (ValueId v : c.nodes) {
    for (ValueId o : g_[v].operands) {
      while (is_view(g_[o].op) || is_unpack(g_, o)) {
        nodes.insert(o);
        o = g_[o].operands[0];
      }
      if (is_splat(g_[o]) || g_[o].op == Op::iota_) {
        nodes.insert(o);
      } else if (!nodes.contains(o)) {
        add_input(o);
      }
    }
    const bool is_load = c.shape == KernelShape::attend && g_[v].op == Op::gather_;  // see with_gathers
    const bool is_encoded = c.shape == KernelShape::move && g_[v].op == Op::map_;    // see grow_codes
    const bool escapes = !is_load && !is_encoded && std::any_of(users_[v].begin(), users_[v].end(), [&](ValueId u) {
      return u < 0 || cluster_[u] != cluster_[v];
    });
    if (escapes || g_[v].op == Op::update_) group.results.push_back(v);
  }
  group.nodes.assign(nodes.begin(), nodes.end());
  return group;
}

std::vector<Group> Partition::groups() const {
  std::vector<Group> ordered;
  std::vector<size_t> waiting(clusters_.size());
  using Entry =
      std::pair<ValueId, int>;  // by the last node: close to the graph's own order; updates at once, to free gradients
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  const auto turn = [&](const Cluster& c) {
    const bool writes_states = std::all_of(c.nodes.begin(), c.nodes.end(), [&](ValueId v) {
      return g_[v].op == Op::update_ || std::all_of(users_[v].begin(), users_[v].end(),
                                                    [&](ValueId u) { return u >= 0 && cluster_[u] == cluster_[v]; });
    });
    if (writes_states) return -1;
    return c.shape == KernelShape::move ? c.root : c.nodes.back();  // transposed codes are often for much later
  };
  size_t total = 0;
  for (int c = 0; c < size(); ++c) {
    if (clusters_[c].nodes.empty()) continue;
    ++total;
    waiting[c] = clusters_[c].previous.size();
    if (waiting[c] == 0) ready.emplace(turn(clusters_[c]), c);
  }
  while (!ready.empty()) {
    const int c = ready.top().second;
    ready.pop();
    ordered.push_back(group_of(clusters_[c]));
    for (int n : clusters_[c].next) {
      if (--waiting[n] == 0) ready.emplace(turn(clusters_[n]), n);
    }
  }
  LUMEN_CHECK(ordered.size() == total, "groups wait for each other in a circle");
  return ordered;
}

}  // namespace

ValueId subject(const Graph& g, const Group& group) {
  for (const ValueId v : group.nodes)
    if (g[v].op == Op::gather_ || g[v].op == Op::scatter_add_ || g[v].op == Op::update_) return v;
  return group.root >= 0 ? group.root : group.results.back();
}

Plan fuse(const Graph& g) {
  Plan plan{arrange(repeat_casts(separate_attention(g))), {}};
  Partition partition(plan.graph);
  partition.merge_all();
  plan.groups = partition.groups();
  return plan;
}

}  // namespace lumen::graph
