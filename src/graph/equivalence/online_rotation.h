// Online rotations: the activation that products with a weight read is multiplied by a Hadamard matrix at run time; the
// weight's columns were multiplied by it in advance. Proved by tests/graph/equivalence/online_rotation_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Every product that reads columns of one of these weights reads x H / sqrt(K) instead of x; H is that of
// hadamard_factors(K). Its factors are constants of the graph, multiplied one after another: K (f1 + f2 + ..)
// operations for each row. Calls are inlined. A weight that is not in the graph is skipped (a family's functions do not
// all use all weights); Error if a weight has no such product, or there is no H.
Graph rotate_inputs(Graph g, const std::vector<std::string>& weights);

}  // namespace lumen::graph
