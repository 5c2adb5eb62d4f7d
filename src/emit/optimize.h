// LLVM's middle end: few passes, because every kernel is compiled while the user waits.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace lumen::emit {

void optimize(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace lumen::emit
