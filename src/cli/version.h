// The version people see.
#pragma once

namespace lumen::cli {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace lumen::cli
