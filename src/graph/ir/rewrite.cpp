#include "graph/ir/rewrite.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace lumen::graph {

namespace {

constexpr size_t kMaxNodes = 1 << 22;

bool has_calls(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    const bool has_body = n.op == Op::scan_ || n.op == Op::chunk_;
    return n.op == Op::call_ || (has_body && has_calls(*n.attributes.callee));
  });
}

}  // namespace

std::vector<ValueId> Rewriter::operands(ValueId old) const {
  std::vector<ValueId> mapped;
  for (ValueId o : from[old].operands) {
    LUMEN_CHECK(map[o] >= 0, "%{} was dropped but %{} needs it", o, old);
    mapped.push_back(map[o]);
  }
  return mapped;
}

ValueId Rewriter::keep(ValueId old) {
  Node copy = from[old];
  copy.operands = operands(old);
  to.nodes.push_back(std::move(copy));
  return map[old] = to.nodes.size() - 1;
}

void Rewriter::keep_label(ValueId old) {
  std::string& label = to[map[old]].label;
  if (label.empty()) label = from[old].label;
}

Graph Rewriter::finish() {
  to.result_names = from.result_names;
  to.results.clear();
  for (ValueId r : from.results) {
    LUMEN_CHECK(map[r] >= 0, "result %{} was dropped", r);
    to.results.push_back(map[r]);
  }
  return std::move(to);
}

std::vector<ValueId> expand_call(Graph& to, const Graph& callee, const std::vector<ValueId>& arguments) {
  std::vector<ValueId> map(callee.nodes.size(), -1);
  std::vector<std::vector<ValueId>> calls(callee.nodes.size());
  size_t next_argument = 0;
  for (ValueId v = 0; v < std::ssize(callee.nodes); ++v) {
    const Node& node = callee[v];
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(map[o]);
    if (node.op == Op::input_) {
      map[v] = arguments[next_argument++];
    } else if (node.op == Op::call_) {
      calls[v] = expand_call(to, *node.attributes.callee, operands);
      for (ValueId r : calls[v]) {
        std::string& label = to[r].label;
        if (label.empty() && to[r].op != Op::input_)
          label = node.label.empty() ? node.attributes.callee->name : node.label;
      }
      map[v] = calls[v][0];
    } else if (node.op == Op::result_ && callee[node.operands[0]].op == Op::call_) {
      map[v] = calls[node.operands[0]][node.attributes.index];
    } else {
      if (to.nodes.size() >= kMaxNodes) throw user_error("the graph is too large once its calls are expanded");
      Node copy = node;
      copy.operands = std::move(operands);
      if (node.attributes.callee && has_calls(*node.attributes.callee))
        copy.attributes.callee = std::make_shared<const Graph>(without_calls(*node.attributes.callee));
      to.nodes.push_back(std::move(copy));
      map[v] = to.nodes.size() - 1;
    }
  }
  std::vector<ValueId> results;
  for (ValueId r : callee.results) results.push_back(map[r]);
  return results;
}

Graph without_calls(const Graph& g) {
  Graph flat;
  flat.name = g.name;
  flat.result_names = g.result_names;
  std::vector<ValueId> inputs;
  for (ValueId v : g.inputs()) {
    inputs.push_back(flat.nodes.size());
    flat.nodes.push_back(g[v]);
  }
  flat.results = expand_call(flat, g, inputs);
  return flat;
}

void drop_chunks(Graph& g) {
  for (Node& node : g.nodes) {
    if (!node.attributes.callee) continue;
    Graph callee = *node.attributes.callee;
    drop_chunks(callee);
    node.attributes.callee = std::make_shared<const Graph>(std::move(callee));
  }
  for (ValueId v = std::ssize(g.nodes) - 1; v >= 0; --v) {  // chunks of chunks last
    Node& node = g[v];
    if (node.op == Op::result_)
      if (const ValueId scan = scan_of(g, node.operands[0]); scan >= 0) node.operands[0] = scan;
    if (node.op != Op::chunk_) continue;
    node.operands[0] = scan_of(g, v);
    node.op = Op::result_;
    node.attributes = {};
  }
}

std::vector<bool> live_values(const Graph& g) {
  std::vector<bool> live(g.nodes.size());
  for (ValueId r : g.results) live[r] = true;
  for (auto v = static_cast<ValueId>(g.nodes.size()) - 1; v >= 0; --v) {
    if (!op_info(g[v].op).pure) live[v] = true;
    if (!live[v]) continue;
    for (ValueId o : g[v].operands) live[o] = true;
  }
  return live;
}

}  // namespace lumen::graph
