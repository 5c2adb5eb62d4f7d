// inline_calls: every call is replaced by its callee's body, innermost included. A call's result keeps the call's
// label, or the callee's name, so that profiles can name it. Proved by tests/graph/pass_test.cpp.
#include "graph/ir/rewrite.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

void inline_calls(Graph& g) {
  g = without_calls(g);
}

}  // namespace lumen::graph
