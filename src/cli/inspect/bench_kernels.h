// lumen bench kernels: single matrix products beside the machine's ceilings.
#pragma once

#include "cli/command.h"

namespace lumen::cli {

void add_bench_kernels(CLI::App& bench, Command& command);

}  // namespace lumen::cli
