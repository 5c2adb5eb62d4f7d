// Encoded activations between the passes of a training step: values of the forward part that gradients read are kept in
// a number format after their last use at full precision. Proved by tests/graph/kept_format_test.cpp.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Values of the forward pass that the backward pass reads are encoded where they are computed, and decoded where the
// backward pass reads them; the forward pass still reads the originals. Rows of the codes are the last axes. Null: no
// value is encoded, and values that are codes already are decoded again for the backward pass, so that no decoded copy
// is kept. Not encoded: values with rows of less than 64 numbers, integers, operands and intermediates of attentions
// (scores that are recomputed must equal those of the forward pass), and values that are read again so soon that
// keeping them is free. Numeric extents; `loss` is a number. Error when the format cannot be encoded.
Graph keep_in_format(const Graph& g, ValueId loss, const FormatRef& format);

// Whether a graph is a training step: a loss followed by updates; or a layer's part of one.
bool is_step(const Graph& g);

}  // namespace lumen::graph
