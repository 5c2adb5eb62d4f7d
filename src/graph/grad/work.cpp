#include "graph/grad/work.h"

#include <algorithm>
#include <map>

#include "graph/pass/pass.h"

namespace lumen::graph {
namespace {

// Operations of one product: two for each combination of all indices but the one that an integer tensor selects.
double product_work(const Graph& g, const Node& n) {
  std::map<char, double> extents;
  const auto take = [&](const std::string& letters, const Type& type) {
    for (size_t d = 0; d < letters.size(); ++d) extents[letters[d]] = type.shape[d].number();
  };
  const std::vector<std::string>& letters = n.attributes.indices;
  for (size_t i = 0; i < n.operands.size(); ++i) take(letters[i], g[n.operands[i]].type);
  take(letters.back(), n.type);
  if (n.op == Op::contract_gather_) extents.erase(letters[1].front());
  if (n.op == Op::contract_scatter_) extents.erase(letters.back().front());
  double work = 2;
  for (const auto& [letter, extent] : extents) work *= extent;
  return work;
}

}  // namespace

double training_work(const Graph& loss, const std::vector<std::string>& trained) {
  Graph g = loss;
  inline_calls(g);
  std::vector<bool> needed(g.nodes.size(), false), active(g.nodes.size(), false);
  for (const ValueId v : g.results) needed[v] = true;
  for (size_t v = g.nodes.size(); v-- > 0;)
    if (needed[v])
      for (const ValueId operand : g.nodes[v].operands) needed[operand] = true;
  double work = 0;
  for (size_t v = 0; v < g.nodes.size(); ++v) {
    const Node& n = g.nodes[v];
    if (n.op == Op::input_) active[v] = std::find(trained.begin(), trained.end(), n.attributes.name) != trained.end();
    size_t gradients = 0;
    for (const ValueId operand : n.operands) gradients += active[operand] ? 1 : 0;
    if (gradients > 0) active[v] = is_float(n.type.element.scalar);  // integers pass no gradient
    if (!needed[v] || n.attributes.indices.empty()) continue;
    work += product_work(g, n) * (1 + gradients);
  }
  return work;
}

}  // namespace lumen::graph
