// Loop kernels to LLVM IR functions. Private allocs become stack slots that the optimizer promotes to registers;
// constant `unroll` loops are unrolled here, so that offsets into them are constants immediately.
//
// May include: base, emit/streaming, kernel/loop, kernel/machine.
// Offers: launch.h.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// Adds the kernel to the module as the function `symbol`. Error when the target cannot run it: a missing machine
// instruction, a grid kernel on a CPU.
void lower_kernel(const loop::Kernel& k, const std::string& symbol, const machine::Machine& target,
                  const llvm::TargetMachine& machine, llvm::Module& module);

}  // namespace lumen::emit
