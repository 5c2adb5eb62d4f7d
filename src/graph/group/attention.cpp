// The parts of an attention group: see attention.h.
#include "graph/group/attention.h"

#include <algorithm>

#include "base/check.h"

namespace lumen::graph {
namespace {

char only_letter(const std::string& of, const std::string& absent_from) {
  const std::string own = own_letters(of, absent_from);
  LUMEN_CHECK(own.size() == 1, "attend over {} axes", own.size());
  return own[0];
}

}  // namespace

std::string own_letters(const std::string& of, const std::string& absent_from) {
  std::string own;
  for (const char c : of)
    if (absent_from.find(c) == std::string::npos) own += c;
  return own;
}

Access by_letters(const Access& a, const std::string& own, const std::string& space) {
  Access out{a.source, a.offset, {}};
  for (const char c : space) {
    const size_t at = own.find(c);
    out.strides.push_back(at == std::string::npos ? 0 : a.strides[at]);
  }
  return out;
}

Access result_by_letters(const Graph& g, ValueId result, const std::string& own, const std::string& space,
                         const std::vector<int64_t>& extents) {
  Access out = by_letters({result, 0, dense_strides_of(extents_of(g[result].type.shape))}, own, space);
  for (size_t d = 0; d < space.size(); ++d)
    if (extents[d] == 1) out.strides[d] = 0;
  return out;
}

AttentionParts::AttentionParts(const Plan& plan, const Group& group) {
  const Graph& g = plan.graph;
  scores = group.root;
  for (const ValueId node : group.nodes) {
    if (g[node].op == Op::contract_ && node != scores) last = node;
    if (g[node].op == Op::reduce_) (g[node].attributes.reduction == Reduction::max ? top : sum) = node;
  }
  LUMEN_CHECK(top >= 0 && sum >= 0 && last >= 0, "attend needs a maximum, a sum and a second dot");
  written = last;
  for (const ValueId node : group.nodes)
    if (g[node].op == Op::map_ && g[node].operands == std::vector<ValueId>{last}) written = node;
  score = g[top].operands[0];
  extents = extents_of(g[scores].type.shape);
  keys = extents.back();
  const auto& dot = g[scores].attributes.indices;
  const auto& pick = g[last].attributes.indices;
  // Keys vary along the scores' last axis, queries do not.
  const int key_side = dot[1].find(dot[2].back()) != std::string::npos ? 1 : 0;
  k = g[scores].operands[key_side];
  q = g[scores].operands[1 - key_side];
  v = g[last].operands[1];
  const char inner = only_letter(dot[0], dot[2]), outer = only_letter(pick[1], pick[0]);
  const auto extent = [&](ValueId value, const std::string& letters, char c) {
    return extents_of(g[value].type.shape)[letters.find(c)];
  };
  depth = extent(q, dot[1 - key_side], inner);
  width = extent(v, pick[1], outer);
  q_access = by_letters(follow(plan, group, q), dot[1 - key_side], dot[2] + inner);
  k_access = key_access(plan, group, k, dot[key_side], dot[2] + inner, k_found);
  v_access = key_access(plan, group, v, pick[1], pick[0] + outer, v_found);
  result_access = result_by_letters(g, written, pick[2], pick[0] + outer, pick_space());
}

Access AttentionParts::key_access(const Plan& plan, const Group& group, ValueId operand, const std::string& own,
                                  const std::string& space, std::optional<Found>& found) const {
  const auto gathered = gathered_access(plan.graph, operand);
  const bool inside =
      gathered && std::find(group.nodes.begin(), group.nodes.end(), gathered->gather) != group.nodes.end();
  if (!inside) return by_letters(follow(plan, group, operand), own, space);
  const size_t key_axis = extents.size() - 1;
  Access rows = by_letters(gathered->rows, own, space);
  LUMEN_CHECK(rows.strides[key_axis] == 0, "keys lie along a gathered row");
  found = Found{plan.graph[gathered->gather].operands[1], by_letters(gathered->index, own, space), gathered->stride,
                gathered->count};
  rows.strides[key_axis] = extents[key_axis] == 1 ? 0 : gathered->stride;
  return rows;
}

bool AttentionParts::shares_keys(size_t d) const {
  const auto same = [&](const Access& a, const std::optional<Found>& found) {
    return a.strides[d] == 0 && (!found || found->access.strides[d] == 0);
  };
  return same(k_access, k_found) && same(v_access, v_found);
}

std::vector<int64_t> AttentionParts::dot_space() const {
  std::vector<int64_t> space = extents;
  space.push_back(depth);
  return space;
}

std::vector<int64_t> AttentionParts::pick_space() const {
  std::vector<int64_t> space = extents;
  space.push_back(width);
  return space;
}

}  // namespace lumen::graph
