// lumen bench kernels: single matrix products compared with the machine's limits of bandwidth and arithmetic.
#pragma once

#include "cli/command.h"

namespace lumen::cli {

void add_bench_kernels(CLI::App& bench, Command& command);

}  // namespace lumen::cli
