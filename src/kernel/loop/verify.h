#pragma once

#include <string>

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Empty, or what is wrong. Checks the invariants listed in loop.h.
std::string verify(const Kernel& k);
std::string verify(const Function& f);  // the same, and pure

}  // namespace lumen::loop
