// What callers and code agree on: how a kernel is called, how its iterations become blocks and threads, and the name of
// its symbol.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// Calling convention on GPUs: symbol(ptr buffer0, ..., ptr status), 8-byte addresses in device memory, one for each
// param of each instance
//   and one of int64 {code, detail}, zeroed by the caller; the first guard failure is kept there. The launch has
//   exactly the shape launch_shape says: the code relies on it.
struct LaunchShape {
  int64_t blocks = 1;        // of all instances, one behind the other
  int threads = 1;           // of a block
  int64_t shared_bytes = 0;  // dynamic ones, beside what the module says itself
};
LaunchShape launch_shape(const loop::Kernel& k, const machine::Machine& target);  // target: a GPU

std::string symbol_name(const loop::Kernel& k);

}  // namespace lumen::emit
