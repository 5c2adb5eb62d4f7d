// Patterns of names, as families write them where they speak of many tensors or keys at once. Proved by
// tests/model/arch/wrapped_test.cpp.
#pragma once

#include <string_view>

namespace lumen::model {

// Whether a name fits a pattern in which * matches any characters.
bool fits_pattern(std::string_view pattern, std::string_view name);

}  // namespace lumen::model
