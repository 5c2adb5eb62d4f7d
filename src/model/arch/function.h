// A model's functions as graphs: the family's function, plus transforms from the model's metadata: weights stored in
// parts (split_weights.h), rotations at run time, low-rank branches of weights (low_rank_weights.h), and quantized
// activations (held_formats.h). Proved by tests/model/compress/equivalent_transform and tests/model/arch.
#pragma once

#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model::arch {

// The metadata key of a model whose weights' columns were multiplied by a Hadamard matrix: GGUF names of those weights.
// The inputs of their products are multiplied by the matrix at run time. Programs that do not know the key compute
// wrong results with such a file.
inline constexpr const char* kOnlineRotations = "lumen.rewrite.online";

// The parameters of that key. Error when it names no parameter.
std::vector<std::string> online_rotations(const Model& model);

// A function of the model's family with all these transforms. All graphs of models are created with this.
graph::Graph function_of(const Model& model, const std::string& name);

}  // namespace lumen::model::arch
