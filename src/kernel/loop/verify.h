#pragma once

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Empty, or what is wrong. Checks the invariants listed in loop.h.
std::string verify(const Kernel& k);

}  // namespace lumen::loop
