#include "graph/ir/rewrite.h"

#include "base/check.h"

namespace lumen::graph {

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
  return map[old] = static_cast<ValueId>(to.nodes.size()) - 1;
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
