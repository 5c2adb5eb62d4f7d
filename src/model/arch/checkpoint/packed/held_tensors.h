// What a folder's quantization_config says of numbers that are held while a model runs, and where its tensors of scales
// lie: for those who read folders and those who write them. Proved by tests/model/arch/packed/held_test.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/packed.h"
#include "model/arch/model.h"

namespace lumen::model {

// What names of tensors beside a layer's attention begin with, by layer ("model.layers.0.self_attn."). Error where a
// layer has no keys of its own.
std::vector<std::string> attention_prefixes(const Model& model);

// Into the model's metadata (held_formats.h). `modules`: of a parameter the packed weights of the folder that it is
// made of. Adds the names of tensors that were read to `used`. What experts or parts of one weight read differs in
// nothing but scales, of which the largest is taken, with a word.
void take_held(Model& model, const PackedCheckpoint& packed, const TensorFile& file,
               const std::function<std::vector<std::string>(const Parameter&)>& modules, std::set<std::string>& used);

}  // namespace lumen::model
