// bring_together: groups of one kind that do not wait for each other stand side by side, so that a device may run them
// at one time: both products of a gated layer, the keys' and the values'. What a launch costs, some microseconds, is as
// much as a small kernel takes. The order of what reads each other stays, and so do all bits. Proved by
// tests/graph/fuse/together_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"

namespace lumen::graph {

namespace {

constexpr size_t kWindow = 12;       // groups, in which others are looked for
constexpr size_t kMostTogether = 4;  // groups
// Bytes of each result: more, and a group keeps a device busy alone. Values of groups that run at one time share no
// memory.
constexpr int64_t kMostBytes = int64_t{4} << 20;

bool is_small(const Graph& g, const Group& group) {
  return std::ranges::all_of(group.nodes, [&](ValueId v) {
    return g[v].op != Op::scan_ && g[v].op != Op::result_ &&
           (g[v].op == Op::update_ || is_view(g[v].op) || byte_size(g[v].type) <= kMostBytes);
  });
}

bool are_alike(const Graph& g, const Group& a, const Group& b) {
  if (a.shape != b.shape || a.nodes.size() != b.nodes.size() || a.inputs.size() != b.inputs.size()) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i)
    if (g[a.nodes[i]].op != g[b.nodes[i]].op || g[a.nodes[i]].type != g[b.nodes[i]].type) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (g[a.inputs[i]].type != g[b.inputs[i]].type) return false;
  return true;
}

// Whether a group has to come behind one that is before it: it reads what that writes, or writes a state that it has to
// do with.
bool waits(const Graph& g, const Group& later, const Group& before) {
  const auto has = [](const std::vector<ValueId>& of, ValueId v) { return std::ranges::find(of, v) != of.end(); };
  if (std::ranges::any_of(later.inputs, [&](ValueId v) { return has(before.results, v); })) return true;
  return std::ranges::any_of(later.results, [&](ValueId v) {
    if (g[v].op != Op::update_) return false;
    const auto is_it = [&](ValueId other) { return storage_of(g, other) == storage_of(g, v); };
    return std::ranges::any_of(before.inputs, is_it) || std::ranges::any_of(before.results, is_it);
  });
}

bool is_exchange(const Graph& g, const Group& group) {
  return group.root >= 0 && g[group.root].op == Op::exchange_;
}

}  // namespace

Plan bring_together(Plan plan) {
  const Graph& g = plan.graph;
  std::vector<Group>& groups = plan.groups;
  // What stands behind an exchange is there to go on beside it.
  if (std::ranges::any_of(groups, [&](const Group& group) { return is_exchange(g, group); })) return plan;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].beside > 0 || !is_small(g, groups[i])) continue;
    size_t end = i + 1;  // of those together
    for (size_t j = i + 1; j < std::min(groups.size(), i + kWindow) && end - i < kMostTogether; ++j) {
      if (!are_alike(g, groups[i], groups[j])) continue;
      const bool has_to_wait = std::any_of(groups.begin() + std::ptrdiff_t(i), groups.begin() + std::ptrdiff_t(j),
                                           [&](const Group& before) { return waits(g, groups[j], before); });
      if (has_to_wait) continue;
      std::rotate(groups.begin() + std::ptrdiff_t(end), groups.begin() + std::ptrdiff_t(j),
                  groups.begin() + std::ptrdiff_t(j) + 1);
      groups[end].beside = int(end - i);
      ++end;
    }
  }
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
