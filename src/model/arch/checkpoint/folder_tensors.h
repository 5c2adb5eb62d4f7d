// The tensors of a Hugging Face folder in their order: names, rows and matrices as such folders have them, plain or
// packed by a scheme, each made when it is written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/pack.h"
#include "model/arch/checkpoint/write.h"
#include "model/file/tensors.h"

namespace lumen::model {

struct FolderTensors {
  std::vector<TensorSpec> specs;
  std::vector<std::function<Bytes()>> make;  // asked in this order
  std::shared_ptr<const Packing> packing;    // null: none is packed
  std::vector<std::string> decoded;          // names of rounded weights that such a folder has in floats
};

// `back`: the config as readers of the folder will see it. `output`: one of Packing::outputs(), or empty. The model and
// `source` must live as long.
FolderTensors folder_tensors(const Model& model, const WeightSource& source, const graph::Config& back,
                             const std::string& output);

}  // namespace lumen::model
