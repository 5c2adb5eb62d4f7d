// group_attention: an attention is one group, with the gathers of its keys and values where the kernel can read their
// tables itself, and with the map that rounds its output. group_attention_gradients: so is the gradient of an
// attention.
// Proved by tests/graph/pass/group_attention*.txt and tests/graph/fuse_test.cpp.
#include <algorithm>
#include <functional>

#include "graph/fuse/fuse.h"
#include "graph/match/access.h"
#include "graph/match/attend.h"

namespace lumen::graph {

namespace {

ValueId first_contract(const Graph& g, const std::vector<ValueId>& nodes) {
  return *std::find_if(nodes.begin(), nodes.end(), [&](ValueId v) { return g[v].op == Op::contract_; });
}

// The map that rounds v to a 16-bit float, if it is the only reader of v; else -1.
ValueId only_rounding(const Partition& p, ValueId v) {
  const Graph& g = p.graph();
  const ValueId u = p.users()[v].size() == 1 ? p.users()[v][0] : -1;
  if (u < 0 || g[u].op != Op::map_ || g[u].type.shape != g[v].type.shape) return -1;
  const Formula& f = g[u].attributes.formula;
  if (f.inputs.size() != 1 || f.outputs.size() != 1 || !p.is_alone(u) || p.feeds_update(u)) return -1;
  const ScalarNode& end = f.nodes[f.outputs[0]];
  const bool casts = end.op == ScalarOp::cast_ && is_float(end.type) && scalar_bits(end.type) == 16 &&
                     f.nodes[end.args[0]].op == ScalarOp::input;
  return casts ? u : -1;
}

// An attention with the gathers of its keys and values, where the kernel can read their tables itself.
std::vector<ValueId> with_gathers(const Partition& p, const std::vector<ValueId>& nodes) {
  const Graph& g = p.graph();
  std::vector<ValueId> with = nodes;
  const auto inside = [&](ValueId u) { return std::find(nodes.begin(), nodes.end(), u) != nodes.end(); };
  const std::function<bool(ValueId)> is_ours = [&](ValueId v) {  // only the attention reads it or a view of it
    return std::all_of(p.users()[v].begin(), p.users()[v].end(),
                       [&](ValueId u) { return u >= 0 && (inside(u) || (is_view(g[u].op) && is_ours(u))); });
  };
  for (const ValueId v : nodes) {
    if (g[v].op != Op::contract_) continue;
    const std::vector<std::string>& letters = g[v].attributes.indices;
    const char key = inside(g[v].operands[0]) ? letters[0].back() : letters[2].back();
    for (size_t i = 0; i < 2; ++i) {
      const ValueId o = g[v].operands[i];
      const size_t at = letters[i].find(key);
      if (inside(o) || at == std::string::npos || g[o].type.shape[at] == Dim(1)) continue;
      const auto gathered = gathered_access(g, o);
      if (!gathered || !is_ours(gathered->gather)) continue;
      if (gathered->index.strides[at] == 0 || gathered->rows.strides[at] != 0) continue;
      if (read_below(g, g[gathered->gather].operands[0]) < 0 || read_below(g, g[gathered->gather].operands[1]) < 0)
        continue;
      if (std::find(with.begin(), with.end(), gathered->gather) == with.end()) with.push_back(gathered->gather);
    }
  }
  return with;
}

}  // namespace

void group_attention(Partition& p) {
  for (const Attention& a : find_attention(p.graph(), p.users(), 0, false)) {
    if (a.is_shared) continue;
    const Form form{KernelShape::attend, first_contract(p.graph(), a.nodes)};
    const auto merge = [&](const std::vector<ValueId>& nodes) {
      const std::vector<ValueId> with = with_gathers(p, nodes);
      return (with.size() != nodes.size() && p.attempt(with, form)) || p.attempt(nodes, form);
    };
    std::vector<ValueId> rounded = a.nodes;
    if (const ValueId cast = only_rounding(p, a.output); cast >= 0) rounded.push_back(cast);
    if (!merge(rounded) && rounded.size() != a.nodes.size()) merge(a.nodes);
  }
}

void group_attention_gradients(Partition& p) {
  for (const AttentionGradient& a : find_attention_gradients(p.graph(), p.users())) {
    p.attempt(a.nodes, {KernelShape::attend_gradient, a.root});
  }
}

}  // namespace lumen::graph
