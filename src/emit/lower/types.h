// LLVM types of loop IR registers. Private to emit.
// bf16 is represented by its 16 bits: targets need no bf16 support, and no library call may be generated for it.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "kernel/loop/loop.h"

namespace lumen::emit {

using Ir = llvm::IRBuilder<>;

llvm::Type* scalar_type(llvm::LLVMContext& context, Scalar s);  // boolean: i1, bf16: i16
llvm::Type* memory_type(llvm::LLVMContext& context, Scalar s);  // boolean: i8
llvm::Type* with_lanes(llvm::Type* scalar, int lanes);          // the scalar type itself for one lane
llvm::Type* register_type(llvm::LLVMContext& context, loop::VType t);

// The same number in all lanes of t's register type.
llvm::Constant* splat_real(llvm::LLVMContext& context, loop::VType t, double x);
llvm::Constant* splat_integer(llvm::LLVMContext& context, loop::VType t, int64_t x);
llvm::Constant* constant(llvm::LLVMContext& context, const loop::Instr& instr);

}  // namespace lumen::emit
