// NVIDIA warp group products (wgmma): factors in shared memory, addressed by descriptors; written as inline assembly,
// because LLVM has no intrinsics for them.
#pragma once

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// Starts acc + a b asynchronously. a and b: addresses in shared memory, in the layout of the row's fragments, or the
// registers of an a in registers. An acc that is the constant zero is not read. `follows`: directly after another
// product; otherwise a fence for registers comes first.
llvm::Value* begin_product(Ir& b, const machine::Row& row, const machine::MatrixRow& matrix, llvm::Value* acc,
                           llvm::Value* a, llvm::Value* c, bool follows);
// Returns x after an optimization barrier: no use of the result moves before it.
llvm::Value* ready_sums(Ir& b, llvm::Value* x);
void commit_products(Ir& b);
void wait_products(Ir& b, int groups);
// Makes the lanes' writes to shared memory visible to products after the next barrier.
void publish_to_products(Ir& b);

}  // namespace lumen::emit
