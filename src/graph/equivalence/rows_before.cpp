#include "graph/equivalence/rows_before.h"

#include <algorithm>
#include <map>

#include "graph/match/access.h"
#include "graph/match/uses.h"

namespace lumen::graph {
namespace {

bool is_parameter(const Graph& g, ValueId v) {
  return g[v].op == Op::input_ && g[v].attributes.role == Role::parameter;
}

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), users_(users_of(g)) {}

  std::optional<RowsBefore> run(const std::vector<std::string>& weights) {
    for (const std::string& name : weights) {
      const ValueId w = g_.find_input(name);
      if (w < 0) return std::nullopt;
      for (const ValueId user : users_[w])
        if (!is_reader(user, w)) return std::nullopt;
    }
    // After tracing back from all roots, visited values must be read only by visited values.
    for (size_t next = 0; next < todo_.size(); ++next)
      if (!visit(todo_[next])) return std::nullopt;
    for (const auto& [v, axis] : axes_)
      for (const ValueId user : users_[v])
        if (!readers_.contains(user) && !(user >= 0 && axes_.contains(user))) return std::nullopt;
    if (out_.rows.empty()) return std::nullopt;
    return out_;
  }

 private:
  // A product along the columns of `weight`: its other operand is a root.
  bool is_reader(ValueId user, ValueId weight) {
    if (user < 0 || (g_[user].op != Op::contract_ && g_[user].op != Op::contract_gather_)) return false;
    const Node& node = g_[user];
    const size_t side = node.operands[1] == weight ? 1 : 0;
    if (std::ranges::count(node.operands, weight) != 1 || !reads_columns_of(node, side)) return false;
    const std::vector<std::string>& i = node.attributes.indices;
    readers_[user] = node.operands[1 - side];
    return add(node.operands[1 - side], i[1 - side].find(i[side].back()));
  }

  bool add(ValueId v, size_t axis) {
    const auto [known, fresh] = axes_.emplace(v, axis);
    if (fresh) todo_.push_back(v);
    return known->second == axis;
  }

  int64_t behind(ValueId v, size_t axis) const {  // elements of the axes after it; -1: unknown
    int64_t count = 1;
    const Shape& shape = g_[v].type.shape;
    for (size_t d = axis + 1; d < shape.size(); ++d) {
      if (!shape[d].is_number()) return -1;
      count *= shape[d].number();
    }
    return count;
  }

  bool visit(ValueId v) {
    const Node& node = g_[v];
    const size_t axis = axes_.at(v);
    switch (node.op) {
      case Op::map_:
        return std::ranges::all_of(node.operands, [&](ValueId o) { return visit_operand(v, o, axis); });
      case Op::permute_:
        return add(node.operands[0], node.attributes.axes[axis]);
      case Op::reshape_:
        return visit_reshape(v, axis);
      case Op::contract_:
        return visit_product(node, axis, {1, 0});
      case Op::contract_gather_:
        return visit_product(node, axis, {1});
      case Op::gather_: {
        const size_t picked = g_[node.operands[1]].type.shape.size();
        return axis >= picked && add(node.operands[0], axis - picked + 1);
      }
      case Op::input_:
        // A bias. Its other readers are checked at the end.
        if (!is_parameter(g_, v) || axis + 1 != node.type.shape.size()) return false;
        out_.elements.push_back(node.attributes.name);
        return true;
      case Op::constant_:
        return is_splat(node);
      default:
        return false;
    }
  }

  // Operands of maps align at the right; extent 1 is the same for all channels.
  bool visit_operand(ValueId v, ValueId o, size_t axis) {
    const Shape& shape = g_[o].type.shape;
    const size_t missing = g_[v].type.shape.size() - shape.size();
    if (axis < missing || shape[axis - missing] == Dim(1)) return true;
    return add(o, axis - missing);
  }

  // The same axis at its new position.
  bool visit_reshape(ValueId v, size_t axis) {
    const ValueId o = g_[v].operands[0];
    const int64_t after = behind(v, axis);
    for (size_t d = 0; after >= 0 && d < g_[o].type.shape.size(); ++d)
      if (g_[o].type.shape[d] == g_[v].type.shape[axis] && behind(o, d) == after) return add(o, d);
    return false;
  }

  // Rows of a weight. The weight's other operand does not change.
  bool visit_product(const Node& node, size_t axis, std::initializer_list<int> sides) {
    const std::vector<std::string>& i = node.attributes.indices;
    for (const int side : sides) {
      const ValueId w = node.operands[side];
      const size_t axes = g_[w].type.shape.size();
      if (!is_parameter(g_, w) || axes < 2 || axes > 3 || !reads_columns_of(node, side)) continue;
      if (i.back()[axis] != i[side][axes - 2] || users_[w].size() != 1) return false;
      out_.rows.push_back(g_[w].attributes.name);
      return true;
    }
    return false;
  }

  const Graph& g_;
  const Users users_;
  std::map<ValueId, size_t> axes_;  // of values whose channels are permuted
  std::vector<ValueId> todo_;
  std::map<ValueId, ValueId> readers_;  // products, and the roots they read
  RowsBefore out_;
};

}  // namespace

std::optional<RowsBefore> rows_before(const Graph& g, const std::vector<std::string>& weights) {
  return Finder(g).run(weights);
}

}  // namespace lumen::graph
