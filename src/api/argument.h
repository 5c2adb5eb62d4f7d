// Numbers that another program hands a function of the language: whether they are sound, and what their shapes say.
#pragma once

#include <string>

#include "graph/ir/type.h"
#include "graph/pass/pass.h"
#include "include/lumen.h"

namespace lumen::api {

// "f32[5, 7]".
std::string told(const lumen_tensor& t);
int64_t bytes_of(const lumen_tensor& t);

// Error (usage) where it is no array of numbers, or lies neither in memory of this process nor on `device`.
void require_sound(const lumen_argument& argument, const lumen_device& device, const std::string& what);
// Error where numbers are not of this type.
void require_type(const lumen_tensor& t, const graph::Type& type, const std::string& what);

// The symbol that a dimension settles when all of its others are known; false while it cannot.
bool settle(const graph::Dim& dim, int64_t extent, graph::Bindings& symbols);

}  // namespace lumen::api
