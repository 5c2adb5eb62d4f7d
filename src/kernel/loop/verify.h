// Invariants of kernels (loop.h), among them what a kernel may do before the kernels launched before it have ended.
// Machines may begin a kernel when all blocks of the one before have begun, which may not have waited themselves: what
// any kernel of the program writes may still be under way then, and what it reads may not be overwritten yet. So before
// `wait kernels` a kernel only copies from params that no kernel of the program writes (`constant`); what came before
// the program has ended, for its first kernel is launched in whole (run/device/gpu/gpu.cpp). Kernels without that
// instruction wait first. What is not `constant` they read by ordinary loads: reads of constant memory are not ordered
// by a wait, and find lines in a first-level cache that kernels before brought there. Proved by
// tests/kernel/loop/loop_early_test.cpp.
#pragma once

#include <string>

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Empty, or what is wrong. Checks the invariants listed in loop.h.
std::string verify(const Kernel& k);
std::string verify(const Function& f);  // the same, and pure

bool begins_early(const Kernel& k);  // it says itself where it waits
// It is launched when those before have ended, for it reads so much of what they may have written that reads of
// constant memory, which compilers move and join freely, are worth more than an early launch.
bool begins_in_whole(const Kernel& k);
// Empty, or what is wrong: one wait at most, by all lanes of a block, and behind it all that touches the memory of
// params, but for copies of constant ones.
std::string check_early(const Kernel& k);

}  // namespace lumen::loop
