#include "graph/match/sign.h"

#include <algorithm>
#include <map>

namespace lumen::graph {
namespace {

class Signs {
 public:
  explicit Signs(const Graph& g) : g_(g) {}

  bool never_negative(ValueId v) {
    const auto [known, fresh] = known_.try_emplace(v, false);
    if (fresh) known_[v] = find(g_[v]);
    return known_.at(v);
  }

 private:
  bool operand(const Node& n, size_t i) { return never_negative(n.operands[i]); }

  bool find(const Node& n) {
    if (n.type.element.format || is_float(n.type.element.scalar)) return false;
    if (!is_signed(n.type.element.scalar)) return true;
    switch (n.op) {
      case Op::constant_:
        return std::ranges::all_of(n.attributes.data, [](double x) { return x >= 0; });
      case Op::iota_:
        return true;
      case Op::map_:
        return node(n, n.attributes.formula.outputs.at(0));
      case Op::reduce_:
        return n.attributes.reduction != Reduction::sum && operand(n, 0);
      case Op::gather_:
      case Op::reshape_:
      case Op::permute_:
      case Op::broadcast_:
      case Op::slice_:
      case Op::windows_:
      case Op::pad_:
        return operand(n, 0);
      case Op::concat_:
        return std::ranges::all_of(n.operands, [&](ValueId o) { return never_negative(o); });
      default:
        return false;
    }
  }

  bool node(const Node& map, int i) {
    const ScalarNode& n = map.attributes.formula.nodes[i];
    if (is_float(n.type)) return false;
    const auto arg = [&](int a) { return node(map, n.args[a]); };
    switch (n.op) {
      case ScalarOp::input:
        return operand(map, n.index);
      case ScalarOp::constant:
        return n.integer >= 0;
      case ScalarOp::select_:
        return arg(1) && arg(2);
      case ScalarOp::min_:
        return arg(0) && arg(1);
      case ScalarOp::max_:
        return arg(0) || arg(1);
      default:
        return n.type == Scalar::boolean;
    }
  }

  const Graph& g_;
  std::map<ValueId, bool> known_;
};

}  // namespace

bool is_never_negative(const Graph& g, ValueId v) {
  return Signs(g).never_negative(v);
}

}  // namespace lumen::graph
