// The grid of shapes and formats whose plans are kept for every machine, in the sizes of real models: products of one
// row to many, training's three orders, attention and its gradient, experts, codecs, reductions, moves.
#pragma once

#include <vector>

#include "made.h"

namespace lumen::golden {

// By name, in order.
const std::vector<Case>& grid();

}  // namespace lumen::golden
