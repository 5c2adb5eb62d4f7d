// The operator table generated from op.def, and look-ups in a graph.
#include "graph/ir/graph.h"

#include "base/check.h"
#include "base/ordinal.h"

namespace lumen::graph {

namespace {

constexpr int n = -1;  // "any number" in op.def
constexpr bool yes = true, no = false;

constexpr OpInfo kOps[] = {
#define X(name, operands, attributes, pure, text) {#name, operands, attributes, pure, text},
#include "graph/ir/op.def"
#undef X
};

}  // namespace

const OpInfo& op_info(Op op) {
  LUMEN_CHECK(ordinal(op) < op_count());
  return kOps[ordinal(op)];
}

int op_count() {
  return std::size(kOps);
}

std::vector<ValueId> Graph::inputs() const {
  std::vector<ValueId> found;
  for (ValueId v = 0; v < std::ssize(nodes); ++v) {
    if (nodes[v].op == Op::input_) found.push_back(v);
  }
  return found;
}

ValueId Graph::find_input(std::string_view input_name) const {
  for (ValueId v = 0; v < std::ssize(nodes); ++v) {
    if (nodes[v].op == Op::input_ && nodes[v].attributes.name == input_name) return v;
  }
  return -1;
}

ValueId scan_of(const Graph& g, ValueId v) {
  while (g[v].op == Op::chunk_) v = g[v].operands[0];
  return g[v].op == Op::scan_ ? v : -1;
}

}  // namespace lumen::graph
