// Quantized activations and caches in a folder's quantization_config, with their scale tensors: for readers and writers
// of folders. Proved by tests/model/arch/packed/held_test.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/packed.h"
#include "model/arch/model.h"

namespace lumen::model::arch {

// Name prefixes of the tensors of each layer's attention ("model.layers.0.self_attn."). Error where a layer has no keys
// of its own.
std::vector<std::string> attention_prefixes(const Model& model);

// Stores the settings in the model's metadata (held_formats.h). `modules`: the packed weights of the folder that a
// parameter consists of. Adds the names of tensors that were read to `used`. The inputs of experts or parts of one
// weight may differ only in scales, of which the largest is taken, with a note.
void take_held(Model& model, const PackedCheckpoint& packed, const file::TensorFile& file,
               const std::function<std::vector<std::string>(const Parameter&)>& modules, std::set<std::string>& used);

}  // namespace lumen::model::arch
