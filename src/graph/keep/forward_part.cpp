#include "graph/keep/forward_part.h"

#include <algorithm>

#include "graph/match/access.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// A conversion between scalar types.
bool is_conversion(const Node& node) {
  if (node.op == Op::cast_) return !node.type.element.format;
  if (node.op != Op::map_ || node.operands.size() != 1) return false;
  const Formula& f = node.attributes.formula;
  return f.nodes.size() == 2 && f.nodes[f.outputs[0]].op == ScalarOp::cast_;
}

// The value below views and decoding; `base` already has the operands'.
ValueId base_of(const Graph& g, const std::vector<ValueId>& base, ValueId v) {
  const Node& node = g[v];
  if (is_view(node.op) || is_unpack(g, v)) return base[node.operands[0]];
  const bool is_decoded = is_conversion(node) && g[base[node.operands[0]]].type.element.format != nullptr;
  return is_decoded ? base[node.operands[0]] : v;
}

bool is_history(const Graph& g, const Node& node) {
  return node.op == Op::update_ && g[node.operands[0]].attributes.name.starts_with(kHistoryState);
}

// Operations between a value and its codes: elementwise maps, reordering, maxima, rotations by a constant.
bool prepares_codes(const Graph& g, const Node& node) {
  const auto is_constant = [&](ValueId o) { return g[o].op == Op::constant_; };
  return op_info(node.op).pure &&
         (!is_product(node.op) || std::any_of(node.operands.begin(), node.operands.end(), is_constant));
}

// By value: a cast into a format, the history of a scale, or a value with no other readers than those.
std::vector<bool> encoded_or_remembered(const Graph& g) {
  const Users users = users_of(g);
  std::vector<bool> out(g.nodes.size());
  for (ValueId v = g.nodes.size(); v-- > 0;) {
    const Node& node = g[v];
    if (is_history(g, node) || (node.op == Op::cast_ && node.type.element.format))
      out[v] = true;
    else
      out[v] = prepares_codes(g, node) && !users[v].empty() &&
               std::all_of(users[v].begin(), users[v].end(), [&](ValueId u) { return u >= 0 && out[u]; });
  }
  return out;
}

}  // namespace

ForwardPart forward_part(const Graph& g, ValueId loss) {
  const ValueId size = g.nodes.size();
  ForwardPart f;
  f.forward.resize(size);
  f.of_data.resize(size);
  f.of_parameter.resize(size);
  f.end = size;
  const std::vector<bool> arrived = values_of_arriving(g);
  if (arrived.empty()) {
    f.forward[loss] = true;
    for (ValueId v = loss; v >= 0; --v)
      if (f.forward[v])
        for (const ValueId o : g[v].operands) f.forward[o] = true;
  } else {
    // All nodes up to the first that depends on an arriving gradient.
    f.end = 0;
    while (f.end < size && (!arrived[f.end] || is_arriving(g[f.end]))) ++f.end;
    for (ValueId v = 0; v < f.end; ++v) f.forward[v] = !is_arriving(g[v]);
  }
  const std::vector<bool> ends = encoded_or_remembered(g);
  std::vector<bool> depends(size);  // on the forward part
  for (ValueId v = 0; v < size; ++v) {
    const Node& node = g[v];
    f.base.push_back(base_of(g, f.base, v));
    if (node.op == Op::input_) {
      f.of_parameter[v] = node.attributes.role == Role::parameter || is_carried_in(node);
      f.of_data[v] = node.attributes.role != Role::parameter;
    }
    bool is_of_it = true;  // depends only on the forward part
    for (const ValueId o : node.operands) {
      if (f.of_data[o]) f.of_data[v] = true;
      if (f.of_parameter[o]) f.of_parameter[v] = true;
      depends[v] = depends[v] || depends[o] || f.active(o);
      is_of_it = is_of_it && (f.forward[o] || !depends[o]);
    }
    if (f.forward[v] || !depends[v]) continue;
    // Views of the forward part, and decodings of its codes, belong to it, too, regardless of their readers.
    const bool is_there = f.base[v] != v && f.forward[f.base[v]];
    const bool may_be = arrived.empty() ? f.end == size : !arrived[v];
    if (is_of_it && may_be && (ends[v] || is_there))
      f.forward[v] = true;
    else if (f.end == size)
      f.end = v;
  }
  return f;
}

}  // namespace lumen::graph
