// A machine instruction by its row: operands become the intrinsic's arguments, its result the row's.
#pragma once

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// For rows that spell their arguments (Row::arguments). Where the operands are several times what the intrinsic takes,
// it is called for each part.
llvm::Value* call_spelled(Ir& b, const machine::Row& row, const std::vector<llvm::Value*>& operands,
                          llvm::Type* result);

// The same with a place in memory as the only argument: lanes of a wave load together.
llvm::Value* call_on_memory(Ir& b, const machine::Row& row, llvm::Value* place, llvm::Type* result);

// The bits of a value as `parts` values of equal width, and such values as one of another type.
std::vector<llvm::Value*> split_bits(Ir& b, llvm::Value* x, unsigned parts);
llvm::Value* join_bits(Ir& b, const std::vector<llvm::Value*>& parts, llvm::Type* type);

}  // namespace lumen::emit
