// A model's functions as graphs: its family's, and what the file says of weights in parts (split_weights.h), of
// rotations that are computed while it runs, of branches of low rank beside weights (low_rank_weights.h), and of
// formats that activations are held in (held_formats.h). Proved by tests/model/compress/rewrite and tests/model/arch.
#pragma once

#include <string>
#include <vector>

#include "model/arch/model.h"

namespace lumen::model {

// The metadata key of a model whose weights have columns that a Hadamard matrix multiplied: GGUF names of those
// weights. What products with them read is multiplied by the matrix first. Programs that do not know the key compute
// something else with such a file.
inline constexpr const char* kOnlineRotations = "lumen.rewrite.online";

// Parameters of that key. Error when the file names what is no parameter.
std::vector<std::string> online_rotations(const Model& model);

// A function of the model's family, with parts, rotations, branches and formats. Whoever makes graphs of a model makes
// them with this.
graph::Graph function_of(const Model& model, const std::string& name);

}  // namespace lumen::model
