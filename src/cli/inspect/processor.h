// The name of the processor, for reports.
#pragma once

#include <string>

namespace lumen::cli {

std::string processor_name();  // as the system calls it; "unknown processor" where it does not say

}  // namespace lumen::cli
