// Invariants of kernels (loop.h), among them what a kernel may do before the kernels launched before it have ended.
// Machines may begin a kernel when all blocks of the previous one have begun, and that one may not have waited itself:
// writes of any earlier kernel of the program may still be in flight, and what it reads must not be overwritten yet. So
// before `wait kernels` a kernel only copies from params that no kernel of the program writes (`constant`); whatever
// preceded the program has ended, for its first kernel is launched without overlap (run/device/gpu/gpu.cpp). Kernels
// without that instruction wait first. Params that are not `constant` are read by ordinary loads: a wait does not order
// reads of constant memory, which may also hit lines that earlier kernels brought to a first-level cache. Proved by
// tests/kernel/loop/loop_early_test.cpp.
#pragma once

#include <string>

#include "kernel/loop/loop.h"

namespace lumen::loop {

// Empty, or the violated invariant, of those listed in loop.h.
std::string verify(const Kernel& k);
std::string verify(const Function& f);  // the same, and pure

bool begins_early(const Kernel& k);  // it contains the wait
// It is launched when the earlier kernels have ended: it reads so much of what they may have written that reads of
// constant memory, which compilers move and merge freely, are worth more than an early launch.
bool begins_in_whole(const Kernel& k);
// Empty, or the error: there is at most one wait, by all lanes of a block, and every access to the memory of params
// comes after it, except for copies of constant ones.
std::string check_early(const Kernel& k);

}  // namespace lumen::loop
