// Invariants, in the order they are checked:
//   1. operands and results exist, and operands precede their uses;
//   2. every node's type follows its rule (infer.cpp); formulas are well formed; names of inputs are unique;
//   3. `results` and `result_names` have equal length;
//   4. a state has one newest value at any time: once updated, the older value is neither read, updated nor returned
//      later. Reads through views and casts count as reads when they happen: the node of the view.
// Proved by tests/graph/ir/type_test.cpp.
#include "graph/ir/verify.h"

#include <fmt/format.h>

#include <set>

#include "base/check.h"
#include "graph/ir/build.h"

namespace lumen::graph {

std::string verify(const Graph& g) {
  std::set<std::string> names;
  std::vector<ValueId> updated_by(g.nodes.size(), -1);
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    const std::string where = fmt::format("%{} = {}", v, op_info(node.op).name);
    for (ValueId operand : node.operands) {
      if (operand < 0 || operand >= v) return fmt::format("{}: operand %{} does not precede its use", where, operand);
      if (updated_by[operand] >= 0) {
        return fmt::format("{}: reads %{}, a state's old value, after its update %{}", where, operand,
                           updated_by[operand]);
      }
    }
    if (std::string wrong = check_type(g, node); !wrong.empty()) return fmt::format("%{} = {}", v, wrong);
    if (node.op == Op::scan_ || node.op == Op::chunk_) {
      if (std::string wrong = verify(*node.attributes.callee); !wrong.empty())
        return fmt::format("{} @{}: {}", where, node.attributes.callee->name, wrong);
    }
    if (node.op == Op::map_) verify_formula(node.attributes.formula);
    if (node.op == Op::input_ && !names.insert(node.attributes.name).second) {
      return fmt::format("{}: a second input named {}", where, node.attributes.name);
    }
    if (node.op == Op::update_) updated_by[node.operands[0]] = v;
  }
  if (g.results.size() != g.result_names.size()) {
    return fmt::format("{} results with {} names", g.results.size(), g.result_names.size());
  }
  for (ValueId r : g.results) {
    if (r < 0 || r >= std::ssize(g.nodes)) return fmt::format("result %{} does not exist", r);
    if (updated_by[r] >= 0) return fmt::format("result %{} is a state's old value, updated by %{}", r, updated_by[r]);
  }
  return {};
}

void verify_or_die(const Graph& g, std::string_view after) {
  const std::string wrong = verify(g);
  LUMEN_CHECK(wrong.empty(), "after {}: {}", after, wrong);
}

}  // namespace lumen::graph
