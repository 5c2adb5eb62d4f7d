#include "apps/weighted_product/weighted_product.h"

#include <algorithm>

#include "graph/match/access.h"

namespace lumen::graph {

ProductLetters product_letters(const Node& product, int side) {
  const std::vector<std::string>& i = product.attributes.indices;
  const std::string &of_weight = i[side], &of_x = i[1 - side];
  const auto has = [](const std::string& letters, char c) { return letters.find(c) != std::string::npos; };
  ProductLetters out;
  for (const char c : i[2]) (!has(of_weight, c) ? out.rows : has(of_x, c) ? out.groups : out.outputs) += c;
  for (const char c : of_x)
    if (!has(i[2], c)) out.columns += c;
  return out;
}

std::vector<ValueId> views_and_pads(const Graph& g, ValueId v) {
  std::vector<ValueId> out;
  for (; is_view(g[v].op) || g[v].op == Op::pad_; v = g[v].operands[0]) out.push_back(v);
  std::ranges::reverse(out);
  return out;
}

int axis_after(const Graph& g, const Node& node, int axis) {
  const Shape& before = g[node.operands[0]].type.shape;
  if (axis < 0) return -1;
  switch (node.op) {
    case Op::reshape_:
      return axis == 0 && !node.type.shape.empty() && node.type.shape[0] == before[0] ? 0 : -1;
    case Op::permute_: {
      const auto& axes = node.attributes.axes;
      return std::find(axes.begin(), axes.end(), axis) - axes.begin();
    }
    case Op::windows_:
      return plain_index(g, node, axis);
    case Op::slice_:
    case Op::pad_:
      return node.type.shape[axis] == before[axis] ? axis : -1;
    case Op::broadcast_:
      return axis + int(node.type.shape.size() - before.size());
    default:
      return -1;
  }
}

}  // namespace lumen::graph
