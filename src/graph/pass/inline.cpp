// inline_calls: every call is replaced by its callee's body, innermost included. What a call returned keeps the call's label, or
// the callee's name, so that profiles can name it. Proved by tests/graph/pass_test.cpp.
#include "base/check.h"
#include "base/error.h"
#include "graph/ir/rewrite.h"
#include "graph/pass/pipeline.h"

namespace lumen::graph {

namespace {

constexpr size_t kMaxNodes = 1 << 22;  // calls of calls can multiply without bound

// Appends the body of `callee` to `to`; returns its results as values there.
std::vector<ValueId> expand(Graph& to, const Graph& callee, const std::vector<ValueId>& arguments) {
  std::vector<ValueId> map(callee.nodes.size(), -1);
  std::vector<std::vector<ValueId>> calls(callee.nodes.size());
  size_t next_argument = 0;
  for (ValueId v = 0; v < static_cast<ValueId>(callee.nodes.size()); ++v) {
    const Node& node = callee[v];
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(map[o]);
    if (node.op == Op::input_) {
      map[v] = arguments[next_argument++];
    } else if (node.op == Op::call_) {
      calls[v] = expand(to, *node.attributes.callee, operands);
      for (ValueId r : calls[v]) {
        std::string& label = to[r].label;
        if (label.empty() && to[r].op != Op::input_) label = node.label.empty() ? node.attributes.callee->name : node.label;
      }
      map[v] = calls[v][0];
    } else if (node.op == Op::result_) {
      map[v] = calls[node.operands[0]][node.attributes.index];
    } else {
      if (to.nodes.size() >= kMaxNodes) throw user_error("the graph is too large once its calls are expanded");
      Node copy = node;
      copy.operands = std::move(operands);
      to.nodes.push_back(std::move(copy));
      map[v] = static_cast<ValueId>(to.nodes.size()) - 1;
    }
  }
  std::vector<ValueId> results;
  for (ValueId r : callee.results) results.push_back(map[r]);
  return results;
}

}  // namespace

void inline_calls(Graph& g) {
  Graph flat;
  flat.name = g.name;
  flat.result_names = g.result_names;
  std::vector<ValueId> inputs;
  for (ValueId v : g.inputs()) {
    inputs.push_back(static_cast<ValueId>(flat.nodes.size()));
    flat.nodes.push_back(g[v]);
  }
  flat.results = expand(flat, g, inputs);
  g = std::move(flat);
}

}  // namespace lumen::graph
