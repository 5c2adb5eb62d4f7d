// How much a training step has to compute, counted on the graph of its loss: what no plan can leave out.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/graph.h"

namespace lumen::graph {

// Multiplications and additions of all products that the results need, once for the values, and once more for each
// operand whose gradient leads to one of the `trained` inputs. What is computed a second time to save memory counts
// nothing, and neither does anything but products. Numeric dims.
double training_work(const Graph& loss, const std::vector<std::string>& trained);

}  // namespace lumen::graph
