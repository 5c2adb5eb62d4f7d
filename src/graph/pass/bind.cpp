// bind_symbols: binds symbols to numbers, also in callees. The operators' rules check again types that symbols had left
// undecided. Proved by tests/graph/pass_test.cpp.
#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

Graph bind_symbols(const Graph& g, const Bindings& symbols) {
  Graph bound = g;
  for (ValueId v = 0; v < std::ssize(bound.nodes); ++v) {
    Node& node = bound[v];
    node.type = graph::bind(node.type, symbols);
    for (const Dim& d : node.type.shape) {
      if (!d.is_number())
        throw user_error("{}: the symbol {} has no value (%{} is {})", g.name, d.symbols[0], v, print(node.type));
    }
    (void)byte_size(node.type);  // rejects values larger than any memory
    if (node.attributes.callee) {
      node.attributes.callee = std::make_shared<const Graph>(bind_symbols(*node.attributes.callee, symbols));
    }
    if (const std::string wrong = check_type(bound, node); !wrong.empty()) {
      throw user_error("{}: with these extents %{} is impossible: {}", g.name, v, wrong);
    }
  }
  return bound;
}

}  // namespace lumen::graph
