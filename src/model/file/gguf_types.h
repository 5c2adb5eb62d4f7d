// Type ids of GGUF tensors: a short table for plain scalars, the format library for all others.
#pragma once

#include <optional>

#include "graph/ir/type.h"
#include "number/library/library.h"

namespace lumen::model::file {

constexpr int kGgufArrayId = 9;   // value type of arrays
constexpr int kGgufBytesId = 24;  // tensor type I8, which carries raw bytes

std::optional<graph::Element> gguf_element(int type, const FormatLibrary& formats);
std::optional<int> gguf_type_id(const graph::Element& element);

}  // namespace lumen::model::file
