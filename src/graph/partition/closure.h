// Everything that must be split together with an operand of a product so that the product sums over parts: traced from
// the operand elementwise back to the products that produce its rows. Proved by
// tests/graph/partition/partition_test.cpp and tests/model/families/partition_test.cpp.
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
  int inner = 0;                        // reductions over the split axis
  int64_t undivided = 0;                // an extent that the number of ranks does not divide; 0: it divides all
};

// nullopt if a value in between cannot be split: rows of a table, chunks that a view breaks up.
std::optional<Closure> closure_of(const Graph& g, const Users& users, ValueId operand, const Split& split, int ranks);

}  // namespace lumen::graph
