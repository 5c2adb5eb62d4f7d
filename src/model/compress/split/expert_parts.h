// Models whose experts are stored in parts by class: the experts of a class are contiguous, the highest class first.
// Where the graph allows permuting experts (equivalence/expert_order.h), the router and all other tensors along that
// axis are permuted, at no cost; otherwise a stored permutation maps the router's indices. The model computes the same,
// except for the order of its sums. Proved by tests/model/compress/split/expert_parts_test.cpp.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/arch/split_weights.h"

namespace lumen::model::compress {

struct ExpertParts {
  std::vector<std::string> weights;  // stacked ones of one mixture
  std::vector<size_t> classes;       // of each expert; 0 is the highest
};
// The classes that have experts, ascending: part i of the weights has the i-th. With one class the weights stay whole.
std::vector<size_t> used_classes(const ExpertParts& parts);

// Error for models with parts or run-time rotations.
arch::Model with_expert_parts(const arch::Model& model, std::span<const ExpertParts> layers);

}  // namespace lumen::model::compress
