// Common parts of the writers of files and of folders.
#pragma once

#include <string>

#include "base/check.h"
#include "model/arch/checkpoint/write.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

inline file::TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  file::TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  spec.element = type.element;
  return spec;
}

// Ids are below this number; 0 if the family has no vocabulary.
inline int64_t vocabulary_of(const Model& model) {
  const auto found = model.config.find("vocab");
  return found == model.config.end() ? 0 : static_cast<int64_t>(found->second);
}

// The format of most weights; `floats`: of those that a packed folder stores as floats. Null when that is f32.
FormatRef main_format(const Model& model, bool floats = false);

}  // namespace lumen::model::arch
