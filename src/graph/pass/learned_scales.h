// learn_scales: scales of operands that training learns. Where a recipe says so of activations, of weights or of the
// operands of attention, every field of the operand's format beside its codes becomes a parameter, and the operand of
// the forward product passes through its format under it before the loss is differentiated: the gradient of the cast is
// that of the step size (LSQ, arXiv 1902.08153): straight through within the range, for the scale what rounding left
// over or the last code, and the latter by 1 / sqrt(numbers under the scale times the largest code). The backward
// products read the codes of the forward one: round_products leaves such operands as they are. Proved by
// tests/graph/learned_scales_test.cpp.
#pragma once

#include "graph/pass/learned/learned.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

// `g`: a loss (its first result) without calls, of numeric extents. `attention`: scales of its operands are learned; of
// the others those whose source `type` says is learned, and of all those that `only` names. Error where a format's
// fields are no parameters: an activation's unless there is one for the whole tensor (rows and blocks are of tokens,
// which are others in each step), and what no single formula encodes.
Graph learn_scales(const Graph& g, const ProductType& type, bool attention, std::vector<LearnedScale>* scales,
                   const LearnedNames& only = {});
// Its results are what the formats fit to the activations, by the names of the parameters; weights are as they are.
Graph fit_scales(const Graph& g, const ProductType& type, bool attention, const LearnedNames& only = {});

}  // namespace lumen::graph
