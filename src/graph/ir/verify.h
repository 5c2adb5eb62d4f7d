// Checks every invariant of graph.h; run between all passes in tests and debug builds.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

std::string verify(const Graph& g);                          // empty, or an error message that names the node
void verify_or_die(const Graph& g, std::string_view after);  // LUMEN_CHECK with the pass's name

}  // namespace lumen::graph
