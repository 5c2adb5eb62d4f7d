// add_low_rank_by_text: as add_low_rank (low_rank.h), but each text of a batch names the set of changes that its rows
// go through. The product with the weight is one for all rows; the narrow way is a product whose rows pick one of the
// stacked changes, as rows of a mixture pick experts, and rows that pick none get nothing added. Proved by
// tests/graph/transform/by_text/by_text_test.cpp.
//
// May include: base, graph/ir, graph/match, graph/transform.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// The stacked changes of one weight, S of them: a is [S, rank, K], b [S, N, rank]; of E matrices that rows pick
// [S * E, rank, K] and [S * E, N, rank]; of rows that are read by number [S * N, rank] and [S, K, rank]. Inputs are
// called low_rank_a(weight), low_rank_b(weight).
struct TextLowRank {
  std::string weight;
  int64_t rank = 0;            // the largest; others are filled up with zeros
  bool rows = false;           // beside reading rows by number
  bool gain = false;           // low_rank_gain(weight): [S, rows of a change]; [S * E, N]
  std::vector<int32_t> slots;  // by set: which of the stacked changes, or -1: none
  int64_t count() const;       // S
};

inline constexpr const char* kTextSets = "low_rank_sets";  // data, i32 [B]: the set of each text

// The graph has no calls and is simplified, and the inputs `tokens` [B, T] and perhaps `rows` [R]: rows of products are
// the tokens of the texts, or those of them that are asked for. Error where a weight is used otherwise.
Graph add_low_rank_by_text(Graph g, const std::vector<TextLowRank>& parts);

}  // namespace lumen::graph
