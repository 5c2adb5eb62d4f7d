// Products of NVIDIA's warp groups: factors in shared memory, named by descriptors; written as inline assembly, because
// LLVM has no intrinsics for them.
#pragma once

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

// acc + a b, begun. a and b: addresses in shared memory, of the layout the row's fragments say, or the registers of a
// held a. An acc that is the constant zero is not read. `follows`: just behind another one; else registers are settled
// first.
llvm::Value* begin_product(Ir& b, const machine::Row& row, const machine::MatrixRow& matrix, llvm::Value* acc,
                           llvm::Value* a, llvm::Value* c, bool follows);
// x, which nothing reads earlier or overwrites.
llvm::Value* ready_sums(Ir& b, llvm::Value* x);
void commit_products(Ir& b);
void wait_products(Ir& b, int groups);
// What lanes wrote to shared memory is seen by products behind the next barrier.
void publish_to_products(Ir& b);

}  // namespace lumen::emit
