// The tensors of a Hugging Face folder in file order: with the names, row order and matrix layout of such folders,
// plain or packed by a scheme, each created when it is written.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/checkpoint/packed/pack.h"
#include "model/arch/checkpoint/write.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

struct FolderTensors {
  std::vector<file::TensorSpec> specs;
  std::vector<std::function<Bytes()>> make;  // called in this order
  std::shared_ptr<const Packing> packing;    // null: nothing is packed
  std::vector<std::string> decoded;          // names of quantized weights that such a folder stores as floats
};

// `back`: the config that a reader of the folder will get. `output`: one of Packing::outputs(), or empty. The model and
// `source` must outlive the result.
FolderTensors folder_tensors(const Model& model, const WeightSource& source, const graph::Config& back,
                             const std::string& output);

}  // namespace lumen::model::arch
