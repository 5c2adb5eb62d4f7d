// Constants of a finished kernel stand right before what uses them first, in its own region, and unused ones go: the
// text of a kernel does not depend on the order in which its writer named its numbers. Proved by
// tests/kernel/loop/loop_build_test.cpp.
#pragma once

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Values are numbered anew in the order of the text.
void place_constants(Kernel& kernel);

}  // namespace lumen::loop
