// Type ids of the plain scalars in files: every reader uses them, so no format may claim one. Must not depend on file
// code; readers and writers use this table. Proved by tests/number/facts/type_ids_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "number/format/format.h"

namespace lumen {

struct ScalarIds {
  Scalar scalar;
  int gguf;                      // type id of GGUF tensors, -1 without one
  std::string_view safetensors;  // dtype
};
std::span<const ScalarIds> scalar_ids();

// The reason why a format's attributes claim an id or name that means something else to every reader; nullopt if they
// are valid.
std::optional<std::string> claimed_scalar(const Format& f);

}  // namespace lumen
