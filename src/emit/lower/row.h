// Lowers a machine instruction by its row: operands become the intrinsic's arguments, its result the row's.
#pragma once

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// For rows with explicit arguments (Row::arguments). If the operands are several times the intrinsic's size, it is
// called for each part.
llvm::Value* call_spelled(Ir& b, const machine::Row& row, const std::vector<llvm::Value*>& operands,
                          llvm::Type* result);

// The same with a memory address as the only argument: a cooperative load by the lanes of a wave.
llvm::Value* call_on_memory(Ir& b, const machine::Row& row, llvm::Value* place, llvm::Type* result);

// split_bits: the bits of a value as `parts` values of equal width; join_bits: the inverse, to another type.
std::vector<llvm::Value*> split_bits(Ir& b, llvm::Value* x, unsigned parts);
llvm::Value* join_bits(Ir& b, const std::vector<llvm::Value*>& parts, llvm::Type* type);

}  // namespace lumen::emit
