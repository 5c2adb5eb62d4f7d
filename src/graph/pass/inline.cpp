// inline_calls: every call is replaced by its callee's body, innermost included. What a call returned keeps the call's
// label, or the callee's name, so that profiles can name it. Proved by tests/graph/pass_test.cpp.
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

void inline_calls(Graph& g) {
  Graph flat;
  flat.name = g.name;
  flat.result_names = g.result_names;
  std::vector<ValueId> inputs;
  for (ValueId v : g.inputs()) {
    inputs.push_back(flat.nodes.size());
    flat.nodes.push_back(g[v]);
  }
  flat.results = expand_call(flat, g, inputs);
  g = std::move(flat);
}

}  // namespace lumen::graph
