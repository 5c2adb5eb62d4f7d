// Whether integers can be negative, as far as a graph shows it: indices of which negative ones pick nothing need not be
// asked where none is. Proved by tests/graph/match/sign_test.cpp.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Known for positions, their extremes and choices among them, as in argmax. False where the graph does not show it:
// data, and sums, which wrap.
bool is_never_negative(const Graph& g, ValueId v);

}  // namespace lumen::graph
