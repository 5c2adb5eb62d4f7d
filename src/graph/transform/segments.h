// Several texts in one row of tokens ("packed"), each of which is computed as if it were alone in it: attention never
// looks before the text that a position belongs to, and learned positions count from where it begins.
#pragma once

#include <string>

#include "graph/ir/graph.h"

namespace lumen::graph {

inline constexpr const char* kStarts = "starts";

// Adds the input `starts: i32[B, T]` to a graph over `tokens`: i32[B, T], whose extents are symbols still: the position
// at which the text that a position belongs to begins. The graph has no calls. Positions may meet in attention with a
// causal mask only; the mask gets one condition more, a lower bound for each query, in the form that kernels read
// ranges of keys from. Rotations depend on distances alone and stay; rows of a table that are read by position are read
// by position - start. What depends on how long a text may become depends on the row, as in a row of one text. Error
// (user) that says what else the graph does with positions: then texts cannot share a row.
void keep_texts_apart(Graph& g, const std::string& tokens = "tokens");

}  // namespace lumen::graph
