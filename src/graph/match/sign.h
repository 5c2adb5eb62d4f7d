// Whether a graph proves that integers are not negative: then indices need no check for negative ones, which select no
// element. Proved by tests/graph/match/sign_test.cpp.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// True for positions, their extremes and choices among them, as in argmax. False where the graph does not prove it:
// data, and sums, which wrap.
bool is_never_negative(const Graph& g, ValueId v);

}  // namespace lumen::graph
