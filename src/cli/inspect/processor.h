// The name of the processor, for reports.
#pragma once

#include <string>

namespace lumen::cli {

std::string processor_name();  // the operating system's name for it; "unknown processor" where there is none

}  // namespace lumen::cli
