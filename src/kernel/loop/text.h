// The text form of loop IR: print and parse are exact inverses.
#pragma once

#include "base/place.h"
#include "kernel/loop/loop.h"

namespace lumen::loop {

std::string print(const Kernel& k);
std::string print(const Function& f);
Kernel parse_kernel(SourceRef source);
Function parse_function(SourceRef source);     // func name(%0: i32x16, %1: u8x64) -> i32x16 { ... return %9 }

}  // namespace lumen::loop
