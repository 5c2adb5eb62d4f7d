// Identity of models by content: the family, the configuration and all weights, independent of file names, file layout
// and times. The one definition for everything that is cached between runs. Proved by
// tests/model/arch/identity_test.cpp.
#pragma once

#include <memory>
#include <string>

#include "base/hash.h"
#include "model/arch/model.h"

namespace lumen::model::arch {

// The hash of all weights: names, shapes, elements and bytes.
Hash weights_hash(const Model& model);

// The identity of a model at two levels. It keeps the weights' bytes alive; they must not change.
class ModelIdentity {
 public:
  // Starts to hash all weights in the background.
  explicit ModelIdentity(const Model& model);
  ModelIdentity(const ModelIdentity&) = delete;
  ModelIdentity& operator=(const ModelIdentity&) = delete;
  ~ModelIdentity();

  // A hash of family, configuration, names, shapes and elements of weights, and 64 blocks of 4 KiB spread over their
  // bytes. Changes between the blocks are not detected.
  const std::string& sampled() const { return sampled_; }
  // The same with all bytes; waits for the background hash.
  const std::string& whole();

 private:
  struct Reading;
  std::string sampled_, whole_;
  std::unique_ptr<Reading> reading_;
};

}  // namespace lumen::model::arch
