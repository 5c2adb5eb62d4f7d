// Activation functions found by their values, independent of how they are written.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Whether v, below casts and reshapes, is f(x) element by element, where f is SiLU or GELU (exact, by tanh, or by a
// sigmoid) within the precision of 16-bit floats, and x any value.
bool is_polar(const Graph& g, ValueId v);

}  // namespace lumen::graph
