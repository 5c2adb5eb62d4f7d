#include "graph/match/uses.h"

#include "graph/match/access.h"

namespace lumen::graph {

bool reads_columns_of(const Node& product, int side) {
  const std::vector<std::string>& i = product.attributes.indices;
  const std::string &of_weight = i[side], &of_x = i[1 - side], &of_result = i.back();
  const auto has = [](const std::string& letters, char c) { return letters.find(c) != std::string::npos; };
  const char n = of_weight[of_weight.size() - 2], k = of_weight.back();
  return !has(of_result, k) && has(of_result, n) && !has(of_x, n) && has(of_x, k);
}

ValueId read_below(const Graph& g, ValueId v) {
  while (is_view(g[v].op)) v = g[v].operands[0];
  if (is_unpack(g, v)) v = g[v].operands[0];
  return is_splat(g[v]) || g[v].op == Op::iota_ ? -1 : v;
}

bool is_compute(const Graph& g, ValueId v) {
  const Op op = g[v].op;
  return op != Op::input_ && op != Op::constant_ && op != Op::iota_ && !is_view(op) && !is_unpack(g, v);
}

ValueId storage_of(const Graph& g, ValueId v) {
  while (g[v].op == Op::update_) v = g[v].operands[0];
  return v;
}

std::vector<ValueId> updates_of(const Graph& g) {
  std::vector<ValueId> by(g.nodes.size(), -1);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (g[v].op == Op::update_) by[g[v].operands[0]] = v;
  }
  return by;
}

Users users_of(const Graph& g) {
  Users users(g.nodes.size());
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    for (ValueId o : g[v].operands) users[o].push_back(v);
  }
  for (ValueId r : g.results) users[r].push_back(-1);
  return users;
}

}  // namespace lumen::graph
