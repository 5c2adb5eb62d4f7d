// What files call the plain scalars: ids that every reader knows and no format can have for something else. Must not
// know files; who reads and writes them asks here. Proved by tests/number/facts/type_ids_test.cpp.
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

// Why files cannot call a format as its attributes say, because the name means something else to every reader; nothing
// when they can.
std::optional<std::string> claimed_scalar(const Format& f);

}  // namespace lumen
