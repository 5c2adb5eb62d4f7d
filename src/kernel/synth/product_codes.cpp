#include "kernel/synth/product_codes.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "graph/match/access.h"
#include "graph/match/codes.h"
#include "graph/match/uses.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/gpu/dot_block_plan.h"
#include "kernel/synth/step/append.h"

namespace lumen::synth {

using graph::Op;
using graph::ValueId;

namespace {

class Parts {
 public:
  Parts(const graph::Plan& plan, const graph::Group& group) : g_(plan.graph), group_(group), end_(end_of_product()) {}

  std::vector<graph::Group> groups() {
    std::vector<graph::Group> out = {part(graph::KernelShape::dot, group_.root, {end_})};
    std::map<ValueId, std::vector<ValueId>> casts;  // by map
    std::vector<ValueId> extremes;
    for (const ValueId r : group_.results) {
      if (g_[r].op == Op::reduce_)
        extremes.push_back(r);
      else if (const auto cast = graph::byte_cast(g_, r))
        casts[cast->source].push_back(r);
    }
    // Casts of the result itself have a kernel each; casts of a map share one, which also finds the extreme of such a
    // map.
    for (auto& [map, of] : casts) {
      if (map == end_) {
        for (const ValueId cast : of) out.push_back(part(graph::KernelShape::move, cast, {cast}));
        continue;
      }
      std::vector<ValueId> results = of;
      const auto own = std::ranges::find_if(extremes, [&](ValueId most) { return is_below(most_of(most), map); });
      if (own != extremes.end()) {
        results.push_back(*own);
        extremes.erase(own);
      }
      std::ranges::sort(results);
      out.push_back(part(graph::KernelShape::move, of[0], results));
    }
    for (const ValueId most : extremes) add_extreme(most, out);
    return out;
  }

 private:
  // From the contraction on, as long as a single map follows.
  ValueId end_of_product() const {
    ValueId v = group_.root;
    while (!is_result(v)) {
      const std::vector<ValueId> users = users_in_group(v);
      if (users.size() != 1 || g_[users[0]].op != Op::map_) break;
      v = users[0];
    }
    return v;
  }
  bool is_result(ValueId v) const { return std::ranges::find(group_.results, v) != group_.results.end(); }
  bool is_inside(ValueId v) const { return std::ranges::binary_search(group_.nodes, v); }
  std::vector<ValueId> users_in_group(ValueId v) const {
    std::vector<ValueId> out;
    for (const ValueId u : group_.nodes)
      if (std::ranges::find(g_[u].operands, v) != g_[u].operands.end()) out.push_back(u);
    return out;
  }

  // The group that computes `results` from the product's end (unless it is the result) and values in memory.
  graph::Group part(graph::KernelShape shape, ValueId root, std::vector<ValueId> results) {
    graph::Group out;
    out.shape = shape;
    out.root = root;
    std::set<ValueId> nodes;
    const auto is_at_hand = [&](ValueId v) { return !is_inside(v) || made_.contains(v); };
    std::vector<ValueId> wanted = results;
    while (!wanted.empty()) {
      const ValueId v = wanted.back();
      wanted.pop_back();
      if (is_at_hand(v)) {
        if (std::ranges::find(out.inputs, v) == out.inputs.end()) out.inputs.push_back(v);
      } else if (nodes.insert(v).second) {
        wanted.insert(wanted.end(), g_[v].operands.begin(), g_[v].operands.end());
      }
    }
    out.nodes.assign(nodes.begin(), nodes.end());
    made_.insert(results.begin(), results.end());
    out.results = std::move(results);
    return out;
  }

  // The map of which this is the extreme; of a map with one operand (a magnitude, say), its operand.
  ValueId most_of(ValueId v) const {
    while (g_[v].op == Op::reduce_) v = g_[v].operands[0];
    const bool is_lone =
        g_[v].op == Op::map_ && g_[v].operands.size() == 1 && is_inside(g_[v].operands[0]) && v != end_;
    return is_lone ? g_[v].operands[0] : v;
  }
  // Whether `map` is v, or comes from it.
  bool is_below(ValueId v, ValueId map) const {
    if (map == v) return true;
    if (map == end_ || g_[map].op != Op::map_ || !is_inside(map)) return false;
    return std::ranges::any_of(g_[map].operands, [&](ValueId o) { return is_below(v, o); });
  }

  void add_extreme(ValueId most, std::vector<graph::Group>& out) {
    const ValueId below = g_[most].operands[0];
    if (g_[below].op == Op::reduce_ && !made_.contains(below)) add_extreme(below, out);
    out.push_back(part(graph::KernelShape::reduce, most, {most}));
  }

  const graph::Graph& g_;
  const graph::Group& group_;
  ValueId end_;
  std::set<ValueId> made_;  // already in memory, written by earlier parts
};

// Synthesizes the groups one after the other; intermediate values that only they read are scratch.
Synthesis synthesize_parts(const graph::Plan& plan, const graph::Group& group, const std::vector<graph::Group>& parts,
                           const machine::Machine& target, const Options& options) {
  Synthesis out;
  std::map<ValueId, Argument> made;
  const auto place = [&](ValueId v) {
    const auto known = made.find(v);
    return known == made.end() ? Argument{Argument::From::value, v} : known->second;
  };
  for (const graph::Group& part : parts) {
    for (const ValueId r : part.results) {
      if (std::ranges::find(group.results, r) != group.results.end()) continue;
      made[r] = {Argument::From::scratch, int(out.scratch.size())};
      out.scratch.push_back(graph::byte_size(plan.graph[r].type));
    }
    Synthesis one = synthesize(plan, part, target, options);
    if (&part == &parts[0]) {
      out.candidates = one.candidates;
      out.bids = one.bids;
    }
    append(std::move(one), place, out);
  }
  return out;
}

// Every part reads the result once less; if nothing else reads it, it is not written.
double cycles_saved(const graph::Plan& plan, const graph::Group& group, const std::vector<graph::Group>& parts,
                    const machine::Machine& m) {
  const ValueId end = parts[0].results[0];
  const bool is_kept = std::ranges::find(group.results, end) != group.results.end();
  const double bytes = graph::byte_size(plan.graph[end].type);
  return cycles_of_moving(m, bytes * (std::ssize(parts) - (is_kept ? 1 : 0)));
}

// Cost of the epilogue. Separate kernels that encode hide their computation by memory latency; here occupancy is low,
// nothing hides it, and the product waits: on an H100 180 us beyond the product for GELU and both codes of 50 million
// numbers, 670 for both gradients of a gate of 92 million.
double cycles_of_encoding(const graph::Plan& plan, const graph::Group& group, const machine::Machine& m) {
  constexpr double kStaging = 8, kCode = 16, kExtreme = 4, kLanes = 128, kShare = 0.5;  // instructions; of a cycle
  double instructions = kStaging;
  for (const ValueId v : group.nodes) {
    const graph::Node& node = plan.graph[v];
    if (node.op == Op::map_) instructions += std::ssize(node.attributes.formula.nodes);
    if (node.op == Op::cast_ && graph::byte_cast(plan.graph, v)) instructions += kCode;
    if (node.op == Op::reduce_) instructions += kExtreme;
  }
  const double numbers = graph::elements(plan.graph[group.root].type.shape).number();
  return numbers * instructions / (m.units * kLanes * kShare);
}

}  // namespace

bool encodes_product(const graph::Plan& plan, const graph::Group& group) {
  return group.shape == graph::KernelShape::dot &&
         std::ranges::any_of(group.results, [&](ValueId r) { return plan.graph[r].op == Op::cast_; });
}

std::vector<graph::Group> product_and_codes(const graph::Plan& plan, const graph::Group& group) {
  return Parts(plan, group).groups();
}

Synthesis synthesize_product_codes(const graph::Plan& plan, const graph::Group& group, const machine::Machine& target,
                                   const Options& options) {
  const std::vector<graph::Group> parts = product_and_codes(plan, group);
  if (target.kind == machine::Kind::gpu) {
    const double alone = product_cycles(plan, parts[0], target, options),
                 saved = cycles_saved(plan, group, parts, target);
    if (product_cycles(plan, group, target, options) + cycles_of_encoding(plan, group, target) < alone + saved)
      return synthesize_dot(plan, group, target, options);
  }
  return synthesize_parts(plan, group, parts, target, options);
}

}  // namespace lumen::synth
