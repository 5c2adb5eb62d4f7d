// Reverse-mode gradients as a transform on the graph: one rule per operator (rules.cpp), no tape.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

// Appends the gradient of the rank-0 value `loss` with respect to each of `with_respect_to` to `g`; returns the gradient values,
// same shapes, element f32 (a parameter held in a format gets the gradient of its decoded value). Calls are differentiated
// through (inlined first). Values that do not influence the loss get zero constants.
std::vector<ValueId> differentiate(Graph& g, ValueId loss, const std::vector<ValueId>& with_respect_to);

}  // namespace lumen::graph
