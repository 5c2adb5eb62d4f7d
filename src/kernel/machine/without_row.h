// A machine's table without one of its instructions. Proved by tests/run/engine/verify/trial/soundness_test.cpp.
#pragma once

#include <string>

#include "kernel/machine/machine.h"

namespace lumen::machine {

// No table of the result refers to the row.
Machine without_row(Machine m, const std::string& row);

}  // namespace lumen::machine
