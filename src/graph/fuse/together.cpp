// bring_together: moves independent groups of one kind next to each other, so that a device may run them concurrently:
// both products of a gated layer, or those of keys and values. The overhead of a launch, some microseconds, is as long
// as a small kernel runs. Dependent groups keep their order, so all bits stay.
// Proved by tests/graph/fuse/together_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

constexpr size_t kWindow = 12;       // groups: the search range
constexpr size_t kMostTogether = 4;  // groups
// The most bytes of each result: a group with more fills a device alone. Values of concurrent groups share no memory.
constexpr int64_t kMostBytes = int64_t{4} << 20;

bool is_small(const Graph& g, const Group& group) {
  if (group.root >= 0 && g[group.root].op == Op::scan_) return false;
  return std::ranges::all_of(group.results,
                             [&](ValueId v) { return g[v].op == Op::update_ || byte_size(g[v].type) <= kMostBytes; });
}

bool are_alike(const Graph& g, const Group& a, const Group& b) {
  if (a.shape != b.shape || a.nodes.size() != b.nodes.size() || a.inputs.size() != b.inputs.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i)
    if (g[a.nodes[i]].op != g[b.nodes[i]].op || g[a.nodes[i]].type != g[b.nodes[i]].type) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (g[a.inputs[i]].type != g[b.inputs[i]].type) return false;
  return true;
}

// Whether a later group must stay after an earlier one: it reads a result of that group, or writes a state that the
// earlier group reads or writes.
bool waits(const Graph& g, const Group& later, const Group& before) {
  const auto has = [](const std::vector<ValueId>& of, ValueId v) { return std::ranges::find(of, v) != of.end(); };
  if (std::ranges::any_of(later.inputs, [&](ValueId v) { return has(before.results, v); })) return true;
  return std::ranges::any_of(later.results, [&](ValueId v) {
    if (g[v].op != Op::update_) return false;
    const auto is_it = [&](ValueId other) { return storage_of(g, other) == storage_of(g, v); };
    return std::ranges::any_of(before.inputs, is_it) || std::ranges::any_of(before.results, is_it);
  });
}

// Moves groups of an ordered plan next to each other.
class Together {
 public:
  explicit Together(Plan* plan) : g_(plan->graph), groups_(plan->groups) {}

  void run() {
    for (size_t i = 0; i < groups_.size(); ++i) gather(i);
  }

 private:
  bool is_taken(size_t i) const {
    return groups_[i].beside > 0 || (i + 1 < groups_.size() && groups_[i + 1].beside > 0);
  }
  // Whether a group must stay after any of the groups from `first` up to itself.
  bool has_to_wait(size_t one, size_t first) const {
    for (size_t i = first; i < one; ++i)
      if (waits(g_, groups_[one], groups_[i])) return true;
    return false;
  }
  bool is_waited_for(size_t one, size_t end) const {
    for (size_t i = one + 1; i < end; ++i)
      if (waits(g_, groups_[i], groups_[one])) return true;
    return false;
  }
  void move(size_t from, size_t to) {
    const auto begin = groups_.begin();
    from < to ? std::rotate(begin + from, begin + from + 1, begin + to + 1)
              : std::rotate(begin + to, begin + from, begin + from + 1);
  }

  // Moves other groups up to this one; if none can move, moves this one down to the first that is like it.
  void gather(size_t first) {
    if (is_taken(first) || !is_small(g_, groups_[first])) return;
    size_t end = first + 1;  // of the adjacent groups
    for (size_t j = first + 1; j < std::min(groups_.size(), first + kWindow) && end - first < kMostTogether; ++j) {
      if (is_taken(j) || !are_alike(g_, groups_[first], groups_[j]) || has_to_wait(j, first)) continue;
      move(j, end);
      groups_[end].beside = int(end - first);
      ++end;
    }
    for (size_t j = first + 1; j < std::min(groups_.size(), first + kWindow) && end == first + 1; ++j) {
      if (is_waited_for(first, j)) return;
      if (is_taken(j) || !are_alike(g_, groups_[first], groups_[j]) || waits(g_, groups_[j], groups_[first])) continue;
      move(first, j - 1);
      groups_[j].beside = 1;
      gather(first);  // the group that is in its place now
      return;
    }
  }

  const Graph& g_;
  std::vector<Group>& groups_;
};

}  // namespace

Plan bring_together(Plan plan) {
  // The order of groups after an exchange is chosen to overlap it.
  const auto is_exchange = [&](const Group& group) {
    return group.root >= 0 && plan.graph[group.root].op == Op::exchange_;
  };
  if (std::ranges::none_of(plan.groups, is_exchange)) Together(&plan).run();
  return plan;
}

size_t first_beside(const Plan& plan, size_t group) {
  return group - size_t(plan.groups[group].beside);
}

size_t last_beside(const Plan& plan, size_t group) {
  const size_t first = first_beside(plan, group);
  size_t last = group;
  while (last + 1 < plan.groups.size() && plan.groups[last + 1].beside > 0 && first_beside(plan, last + 1) == first)
    ++last;
  return last;
}

}  // namespace lumen::graph
