// Conventions shared by callers and generated code: the signature of a kernel, the mapping of its iterations to blocks
// and threads, and its symbol name.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// Calling convention on GPUs: symbol(ptr buffer0, ..., ptr status), 8-byte addresses in device memory, one for each
// param of each instance and one of int64 {code, detail}, zeroed by the caller, which keeps the first guard failure.
// The launch must have exactly the shape of launch_shape: the code relies on it.
struct LaunchShape {
  int64_t blocks = 1;        // of all instances, consecutively
  int threads = 1;           // per block
  int64_t shared_bytes = 0;  // dynamic shared memory, in addition to the module's static size
};
LaunchShape launch_shape(const loop::Kernel& k, const machine::Machine& target);  // target: a GPU

std::string symbol_name(const loop::Kernel& k);

}  // namespace lumen::emit
