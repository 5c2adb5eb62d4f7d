// Places each constant of a finished kernel right before its first use in its own region, and removes unused ones: the
// text of a kernel does not depend on the order in which its numbers were created. Proved by
// tests/kernel/loop/loop_build_test.cpp.
#pragma once

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Values are renumbered in the order of the text.
void place_constants(Kernel& kernel);

}  // namespace lumen::loop
