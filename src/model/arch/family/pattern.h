// Name patterns of families for groups of tensors or keys. Proved by tests/model/arch/wrapped_test.cpp.
#pragma once

#include <string_view>

namespace lumen::model::arch {

// Whether a name matches a pattern in which * matches any characters.
bool fits_pattern(std::string_view pattern, std::string_view name);

}  // namespace lumen::model::arch
