// Variants of a machine in the table: cards of the same instructions with another number of units, the generic target
// of a generation, which every card of it runs, and scalable vectors of other lengths. They are found by name and run;
// lists of plans and tests that go over the table contain only the original.
// Proved by tests/kernel/machine/relatives_test.cpp, tests/amd/tool_test.cpp and tests/ladder/dot_arm_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/machine/machine.h"

namespace lumen::machine {

std::vector<MachineRef> relatives();

// The name of the row whose generic code a GPU runs ("gfx1103": "gfx11-generic"); empty where there is none.
std::string generic_of(std::string_view architecture);
bool is_generic(const Machine& m);

// Variants of amd_machines() and arm_machines().
std::vector<Machine> amd_relatives();
std::vector<Machine> arm_relatives();

}  // namespace lumen::machine
