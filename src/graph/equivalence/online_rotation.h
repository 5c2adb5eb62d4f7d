// Rotations computed while a graph runs: what products with a weight read is multiplied by a Hadamard matrix first, the
// weight's columns having been multiplied by it before. Proved by tests/graph/equivalence/online_rotation_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Every product that reads columns of one of these weights reads x H / sqrt(K) instead of x; H is that of
// hadamard_factors(K). Its factors are constants of the graph, multiplied one after another: K (f1 + f2 + ..)
// operations for each row. Calls are inlined. A weight that the graph does not have is passed over (a family's
// functions do not all use all); Error when one is there but no such product reads it, or there is no H.
Graph rotate_inputs(Graph g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
