// order_operands: a computed value is a product's first operand, a value only read its second: kernels pack weights and
// cached keys. The second factor of a contract_scatter has the result's last axis, along which kernels vectorize
// stores. Proved by tests/graph/pass/order_operands.txt.
#include <utility>

#include "graph/ir/rewrite.h"
#include "graph/match/uses.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

namespace {

bool is_swapped(const Graph& g, const Node& node) {
  if (node.op == Op::contract_) return !is_compute(g, node.operands[0]) && is_compute(g, node.operands[1]);
  if (node.op != Op::contract_scatter_) return false;
  const std::vector<std::string>& letters = node.attributes.indices;
  return letters[0].find(letters[3].back()) != std::string::npos;
}

}  // namespace

void order_operands(Graph& g) {
  for (Node& node : g.nodes) {
    if (!is_swapped(g, node)) continue;
    std::swap(node.operands[0], node.operands[1]);
    std::swap(node.attributes.indices[0], node.attributes.indices[1]);
  }
}

}  // namespace lumen::graph
