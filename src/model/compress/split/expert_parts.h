// Models whose experts lie in parts by class: those of a class beside each other, the highest class first. Where the
// graph lets experts change places (equivalence/expert_order.h) the router and all else that runs along them takes
// their order, and it costs nothing; else an order is kept, by which what the router picks is looked up. What the model
// computes stays, but for the order of its sums. Proved by tests/model/compress/split/expert_parts_test.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/arch/split_weights.h"

namespace lumen::model {

struct ExpertParts {
  std::vector<std::string> weights;  // stacked ones of one mixture
  std::vector<size_t> classes;       // of each expert; 0 is the highest
};
// The classes that have experts, rising: part i of the weights has the i-th. One alone: the weights stay whole.
std::vector<size_t> used_classes(const ExpertParts& parts);

// Error for models that have parts or run-time rotations.
Model with_expert_parts(const Model& model, std::span<const ExpertParts> layers);

}  // namespace lumen::model
