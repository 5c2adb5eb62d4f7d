// The minimum work of a training step, counted on the graph of its loss.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Multiplications and additions of all products that the results depend on: once for the values, and once more for each
// operand whose gradient leads to one of the `trained` inputs. Recomputation to save memory is not counted, and neither
// are operators other than products. Numeric dims.
double training_work(const Graph& loss, const std::vector<std::string>& trained);

}  // namespace lumen::graph
