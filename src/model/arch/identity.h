// Whether two models are the same, by their contents: what computes (family and configuration) and all weights,
// whatever files they lie in, how those are called and when they were written. One definition for everything that keeps
// work between runs. Proved by tests/model/arch/identity_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/hash.h"
#include "model/arch/model.h"

namespace lumen::model {

// The hash of all weights: names, shapes, elements and bytes.
Hash weights_hash(const Model& model);

// The identity of a model in two strengths. Its weights' bytes are kept alive; they must not change.
class ModelIdentity {
 public:
  // Begins to read all weights in the background.
  explicit ModelIdentity(const Model& model);
  ModelIdentity(const ModelIdentity&) = delete;
  ModelIdentity& operator=(const ModelIdentity&) = delete;
  ~ModelIdentity();

  // Family, configuration, names, shapes and elements of weights, and 64 blocks of 4 KiB spread over their bytes.
  // Another model has another one, but for changes between the blocks.
  const std::string& sampled() const { return sampled_; }
  // The same of all bytes; waits until they are read.
  const std::string& whole();

 private:
  struct Reading;
  std::string sampled_, whole_;
  std::unique_ptr<Reading> reading_;
};

}  // namespace lumen::model
