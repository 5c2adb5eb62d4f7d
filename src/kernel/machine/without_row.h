// A machine's table without one of its instructions. Proved by tests/run/engine/trial/soundness_test.cpp.
#pragma once

#include <string>

#include "kernel/machine/machine.h"

namespace lumen::machine {

// Nothing asks for the row any more.
Machine without_row(Machine m, const std::string& row);

}  // namespace lumen::machine
