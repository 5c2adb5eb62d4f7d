// Inputs of a step, uploaded to the device only if they differ from those of the previous run.
#pragma once

#include <cstring>
#include <vector>

#include "base/check.h"
#include "run/engine/program/tensor.h"

namespace lumen::model::infer {

class Handed {
 public:
  Handed() = default;
  explicit Handed(run::DeviceTensorRef tensor) : tensor_(std::move(tensor)) {}
  const run::DeviceTensorRef& tensor() const { return tensor_; }

  template <typename T>
  void put(const std::vector<T>& data) {
    const size_t bytes = data.size() * sizeof(T);
    LUMEN_CHECK(std::cmp_equal(bytes, tensor_->bytes()));
    if (last_.size() == bytes && std::memcmp(last_.data(), data.data(), bytes) == 0) return;
    last_.resize(bytes);
    std::memcpy(last_.data(), data.data(), bytes);
    tensor_->upload(data.data(), tensor_->bytes());
  }

 private:
  run::DeviceTensorRef tensor_;
  std::vector<char> last_;
};

}  // namespace lumen::model::infer
