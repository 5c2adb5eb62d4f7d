// in_bodies and decode_in_steps. Proved by tests/graph/steps/scan_test.cpp.
#include <algorithm>
#include <memory>

#include "graph/ir/rewrite.h"
#include "graph/match/access.h"
#include "graph/steps/steps.h"

namespace lumen::graph {

namespace {

// The body with an input in its stored format, decoded before its first use.
// `label`: of the original decoding.
Graph with_stored_input(const Graph& body, ValueId input, const Type& stored, const std::string& label) {
  Rewriter r(body);
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v) {
    const ValueId kept = r.keep(v);
    if (v != input) continue;
    r.to[kept].type = stored;
    r.replace(v, r.build.cast(kept, body[v].type.element));
    r.to[r[v]].label = label;
  }
  return r.finish();
}

}  // namespace

bool has_scans(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::scan_; });
}

void in_own_bodies(Graph& g, const std::function<void(Graph&)>& pass) {
  for (Node& node : g.nodes) {
    if (node.op != Op::scan_) continue;
    Graph body = *node.attributes.callee;
    pass(body);
    node.attributes.callee = std::make_shared<const Graph>(std::move(body));
  }
}

void in_bodies(Graph& g, const std::function<void(Graph&)>& pass) {
  in_own_bodies(g, [&](Graph& body) {
    in_bodies(body, pass);
    pass(body);
  });
}

void decode_in_steps(Graph& g) {
  for (Node& node : g.nodes) {
    if (node.op != Op::scan_) continue;
    for (size_t i = node.attributes.carries + node.attributes.sequences; i < node.operands.size(); ++i) {
      if (!is_unpack(g, node.operands[i]) || g[node.operands[i]].operands.size() != 1) continue;
      const std::string label = g[node.operands[i]].label;
      node.operands[i] = g[node.operands[i]].operands[0];
      const Graph& body = *node.attributes.callee;
      node.attributes.callee =
          std::make_shared<const Graph>(with_stored_input(body, body.inputs()[i], g[node.operands[i]].type, label));
    }
  }
  in_own_bodies(g, decode_in_steps);
}

}  // namespace lumen::graph
