// See attend_rows.h.
#include "kernel/synth/attention/attend_rows.h"

#include <algorithm>

namespace lumen::synth {

namespace {

constexpr int64_t kNeighbours = 2;  // adjacent rows that a lane holds, in fragments of the streaming instructions

// Whether a node does nothing with operand number `i` but divide by it.
bool only_divides(const graph::Node& node, size_t i) {
  if (node.op != graph::Op::map_) return false;
  const Formula& f = node.attributes.formula;
  const auto is_input = [&](int n) {
    const ScalarNode& x = f.nodes[n];
    return x.op == ScalarOp::input && x.index == static_cast<int>(i);
  };
  if (std::any_of(f.outputs.begin(), f.outputs.end(), is_input)) return false;
  for (const ScalarNode& n : f.nodes)
    for (int k = 0; k < 3 && n.op != ScalarOp::input && n.args[k] >= 0; ++k)
      if (is_input(n.args[k]) && !(n.op == ScalarOp::div_ && k == 1)) return false;
  return true;
}

}  // namespace

int64_t RowNumber::count(const std::vector<int64_t>& extents) const {
  int64_t out = 1;
  for (size_t d = 0; d < extents.size(); ++d) out *= access.strides[d] != 0 ? extents[d] : 1;
  return out;
}

std::vector<RowNumber> row_numbers(const graph::Plan& plan, const graph::Group& group, const AttentionGradient& a) {
  const graph::Graph& g = plan.graph;
  const int64_t inner = a.row_axes.empty() ? 1 : a.extents[a.row_axes.back()];
  std::vector<RowNumber> out;
  if (inner % kNeighbours != 0) return out;
  for (const graph::ValueId v : group.nodes) {
    if (g[v].op != graph::Op::map_ || is_load(plan, group, v) || g[v].type.shape != g[group.root].type.shape) continue;
    for (const graph::ValueId o : g[v].operands) {
      const auto is_known = [&](const RowNumber& n) { return n.value == o; };
      if (!is_load(plan, group, o) || std::any_of(out.begin(), out.end(), is_known)) continue;
      const Access access = follow_to(plan, group, o, a.extents);
      const graph::Element& element = g[access.source].type.element;
      const bool in_memory = std::find(group.inputs.begin(), group.inputs.end(), access.source) != group.inputs.end();
      const bool varies =
          std::any_of(a.row_axes.begin(), a.row_axes.end(), [&](int d) { return access.strides[d] != 0; });
      if (in_memory && !element.format && element.scalar == Scalar::f32 && access.strides.back() == 0 && varies)
        out.push_back({o, access, true});
    }
  }
  for (RowNumber& n : out)
    for (const graph::ValueId v : group.nodes)
      for (size_t i = 0; i < g[v].operands.size(); ++i)
        if (g[v].operands[i] == n.value) n.divides = n.divides && only_divides(g[v], i);
  return out;
}

}  // namespace lumen::synth
