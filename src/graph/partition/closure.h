// What must be split with an operand of a product, if the product is to sum over parts: from the operand back to the
// products that its rows come of, element by element. Proved by tests/graph/partition/partition_test.cpp and
// tests/model/families/partition_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "graph/match/uses.h"
#include "graph/partition/split.h"

namespace lumen::graph {

struct Closure {
  std::map<std::string, Split> inputs;  // parameters
  int rows = 0;                         // weights whose rows are split
  int inner = 0;                        // reductions over what is split
  int64_t undivided = 0;                // so many things stay together that ranks do not divide; 0: all are divided
};

// Nothing where something between cannot be split: rows of a table, chunks that a view tears apart.
std::optional<Closure> closure_of(const Graph& g, const Users& users, ValueId operand, const Split& split, int ranks);

}  // namespace lumen::graph
