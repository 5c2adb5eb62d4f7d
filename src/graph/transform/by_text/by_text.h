// add_low_rank_by_text: like add_low_rank (low_rank.h), but each sequence of a batch names the set of changes
// (adapters) that apply to its rows. The product with the weight is one for all rows; the low-rank branch is a product
// whose rows select one of the stacked changes, like rows of a mixture select experts, and rows that select none get no
// change. Proved by tests/graph/transform/by_text/by_text_test.cpp.
//
// May include: base, graph/ir, graph/match, graph/transform.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The stacked changes of one weight, S of them: a is [S, rank, K], b [S, N, rank]; of E matrices that rows select [S *
// E, rank, K] and [S * E, N, rank]; of an embedding whose rows are gathered [S * N, rank] and [S, K, rank]. Inputs are
// named low_rank_a(weight), low_rank_b(weight).
struct TextLowRank {
  std::string weight;
  int64_t rank = 0;            // the largest; others are padded with zeros
  bool rows = false;           // applies to a gather of the weight's rows
  bool gain = false;           // low_rank_gain(weight): [S, rows of a change]; [S * E, N]
  std::vector<int32_t> slots;  // by set: index of the stacked change, or -1: none
  int64_t count() const;       // S
};

inline constexpr const char* kTextSets = "low_rank_sets";  // data, i32 [B]: the set of each sequence

// The graph has no calls and is simplified, and has the inputs `tokens` [B, T] and optionally `rows` [R]: rows of
// products are the tokens of the sequences, or only the requested ones. Error where a weight has another use.
Graph add_low_rank_by_text(Graph g, const std::vector<TextLowRank>& parts);

}  // namespace lumen::graph
