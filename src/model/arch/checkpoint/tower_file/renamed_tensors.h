// Tensors of another file under other names. Proved by tests/model/arch/wrapped_test.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/file/gguf.h"

namespace lumen::model::arch {

class RenamedTensors : public file::TensorFile {
 public:
  RenamedTensors(std::shared_ptr<const file::TensorFile> file, std::vector<file::StoredTensor> tensors,
                 const std::string& name)
      : file_(std::move(file)) {
    tensors_ = std::move(tensors);
    index(name);
  }

 private:
  std::shared_ptr<const file::TensorFile> file_;  // owns the bytes
};

}  // namespace lumen::model::arch
