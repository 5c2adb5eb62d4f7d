// separate_fits (pass.h) where no kernel finds scales in squares of a matrix: those of tiles are reductions, too.
#pragma once

#include "graph/ir/graph.h"

namespace lumen::graph {

void separate_fits_of_squares(Graph& g);

}  // namespace lumen::graph
