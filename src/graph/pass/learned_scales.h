// learn_scales: scales of operands that training learns. If a recipe requests it for activations, weights or the
// operands of attention, every field of the operand's format except its codes becomes a parameter, and the operand of
// the forward product is fake-quantized with it before the loss is differentiated. The gradient of the cast is that of
// the step size (LSQ, arXiv 1902.08153): straight-through within the range; for the scale the rounding error or the
// last code, multiplied by 1 / sqrt(numbers under the scale times the largest code). The backward products read the
// codes of the forward one: round_products leaves such operands unchanged. Proved by
// tests/graph/learned_scales_test.cpp.
#pragma once

#include "graph/pass/learned/learned.h"
#include "graph/pass/pass.h"

namespace lumen::graph {

// `g`: a loss (its first result) without calls, of numeric extents. `attention`: scales of its operands are learned; of
// the others those whose source in `type` is learned, and of all those only the ones that `only` names. Error where a
// format's fields cannot be parameters: an activation's unless there is one for the whole tensor (rows and blocks
// belong to tokens, which differ in each step), and formats that no single formula encodes.
Graph learn_scales(const Graph& g, const ProductType& type, bool attention, std::vector<LearnedScale>* scales,
                   const LearnedNames& only = {});
// Its results are the scales fitted to the activations, by the names of the parameters; weights are unchanged.
Graph fit_scales(const Graph& g, const ProductType& type, bool attention, const LearnedNames& only = {});

}  // namespace lumen::graph
