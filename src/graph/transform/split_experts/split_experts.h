// split_experts: a stacked weight [E, N, K] whose matrices rows select (contract_gather) becomes parts along E, each a
// parameter of its own that may be stored in a format of its own; a product becomes the sum of the parts' products,
// whose integers are shifted so that those of other parts select no matrix. Proved by
// tests/graph/transform/split_experts/split_experts_test.cpp.
//
// May include: base, graph/ir, graph/match, graph/pass, graph/transform.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

struct ExpertSplit {
  std::string weight;            // a parameter input
  std::vector<int64_t> experts;  // of each part, at least two; their sum is E
  // A parameter [E] of f32: expert e of the weight is expert order[e] of the concatenated parts. Empty: the parts have
  // the weight's own order, or the integers already use theirs.
  std::string order;
};

// The parameter of part i.
std::string expert_part(const std::string& weight, size_t i);

// Calls are inlined. A weight that is not in the graph is skipped. Error when parts do not sum to E, or when a reader
// of the weight is no product whose rows select its matrices.
Graph split_experts(Graph g, const std::vector<ExpertSplit>& splits);

// Weights that can be split: parameters of three axes that are read only by products whose rows select their matrices;
// those selected by the same integers are grouped, in the order of the graph.
struct StackedExperts {
  std::vector<std::string> weights;
  int64_t experts = 0;
};
std::vector<StackedExperts> stacked_experts(Graph g);

}  // namespace lumen::graph
