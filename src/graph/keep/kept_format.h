// Codes between the passes of a training step: what gradients read of the forward part lies in memory in a number
// format from where it was last wanted in full. Proved by tests/graph/kept_format_test.cpp.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Values that the backward pass reads of the forward one are encoded where they are made, and decoded where they are
// read; the forward pass reads what it always did. The codes' rows are the last axes. Null: nothing is encoded, and
// what is codes already is decoded again for the backward pass, so that no decoded copy is kept. Left as they are:
// values with rows of less than 64 numbers, integers, what attentions multiply and compute inside (scores that are
// computed again must be those of the forward pass), and what is read so soon that keeping it costs nothing.
// Numeric extents; `loss` is a number. Error when the format cannot be encoded.
Graph keep_in_format(const Graph& g, ValueId loss, const FormatRef& format);

// Whether a graph is a training step: a loss, and updates behind it; or a layer's part of one.
bool is_step(const Graph& g);

}  // namespace lumen::graph
