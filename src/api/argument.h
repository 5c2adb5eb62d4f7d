// Arguments that another program passes to a function of the language: validation, and shape symbols.
#pragma once

#include <string>

#include "graph/ir/type.h"
#include "graph/pass/pass.h"
#include "include/lumen.h"

namespace lumen::api {

// "f32[5, 7]".
std::string told(const lumen_tensor& t);
int64_t bytes_of(const lumen_tensor& t);

// Error (usage) for an invalid tensor, or for memory that is neither of this process nor of `device`.
void require_sound(const lumen_argument& argument, const lumen_device& device, const std::string& what);
// Error when the element type or the shape differs from `type`.
void require_type(const lumen_tensor& t, const graph::Type& type, const std::string& what);

// Solves a dimension for its only unknown symbol; false while more than one symbol is unknown.
bool settle(const graph::Dim& dim, int64_t extent, graph::Bindings& symbols);

}  // namespace lumen::api
