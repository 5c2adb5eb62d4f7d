// LLVM's description of a machine.
#pragma once

#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "kernel/machine/machine.h"

namespace lumen::emit {

std::unique_ptr<llvm::TargetMachine> make_target(const machine::Machine& m,
                                                 bool comments = false);  // Error when this build has no such target

}  // namespace lumen::emit
