// Sequence packing: several sequences in one row of tokens, each computed as if it were alone in it: attention never
// reads before the start of the query's sequence, and learned positions count from that start.
#pragma once

#include <string>

#include "graph/ir/graph.h"

namespace lumen::graph {

inline constexpr const char* kStarts = "starts";

// Adds the input `starts: i32[B, T]` to a graph over `tokens`: i32[B, T], whose extents are still symbols: the position
// at which the sequence of each position begins. The graph has no calls. Positions may interact only in attention with
// a causal mask; the mask gets an additional condition, a lower bound for each query, in the form from which kernels
// derive ranges of keys. Rotations depend only on distances and stay; rows of a table that are gathered by position are
// gathered by position - start. Values that depend on the maximum length depend on the row's, as in a row of one
// sequence. Error (user) that names any other use of positions: then sequences cannot share a row.
void keep_texts_apart(Graph& g, const std::string& tokens = "tokens");

}  // namespace lumen::graph
