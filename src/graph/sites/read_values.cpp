#include "graph/sites/read_values.h"

#include <map>

#include "graph/ir/build.h"
#include "graph/pass/pass.h"
#include "graph/sites/sites.h"

namespace lumen::graph {
namespace {

// The operand of a product with columns last, as rows.
ValueId read_rows(Builder& build, const Node& product, int side) {
  const std::string &of_x = product.attributes.indices[1 - side], &of_weight = product.attributes.indices[side];
  std::vector<int> order;
  for (size_t d = 0; d < of_x.size(); ++d)
    if (of_x[d] != of_weight[1]) order.push_back(d);
  order.push_back(of_x.find(of_weight[1]));
  const ValueId moved = build.permute(product.operands[1 - side], order);
  const Shape shape = build.type(moved).shape;
  return build.reshape(moved, {*divide(elements(shape), shape.back()), shape.back()});
}

}  // namespace

std::string read_value(const std::string& weight) {
  return weight + ".read";
}

Graph hand_back_reads(Graph g, const std::vector<std::string>& weights) {
  inline_calls(g);
  simplify(g);
  Builder build(g);
  std::map<ValueId, std::vector<ValueId>> read;
  const ValueId end = g.nodes.size();
  for (ValueId v = 0; v < end; ++v) {
    const int side = product_side(g, v);
    if (side < 0) continue;
    const Node product = g[v];
    read[product.operands[side]].push_back(read_rows(build, product, side));
  }
  for (const std::string& weight : weights) {
    const auto found = read.find(g.find_input(weight));
    if (found == read.end()) continue;
    const std::vector<ValueId>& parts = found->second;
    g.results.push_back(parts.size() == 1 ? parts[0] : build.concat(parts, 0));
    g.result_names.push_back(read_value(weight));
  }
  simplify(g);
  return g;
}

}  // namespace lumen::graph
