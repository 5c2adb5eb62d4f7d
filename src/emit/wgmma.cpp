// See wgmma.h. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate" and "Matrix descriptor format":
// address, and bytes from one group of eight rows to the next, in units of 16; the swizzle of 128 bytes. Proved by
// tests/emit/gpu_test.cpp.
#include "emit/wgmma.h"

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "emit/grid.h"

namespace lumen::emit {

using llvm::Value;

namespace {

constexpr uint64_t kRowBytes = 128, kGroupBytes = 8 * kRowBytes, kSwizzled128 = uint64_t{1} << 62;

// Stride: from one group of eight rows of 128 bytes to the next. Leading: where rows lie beside each other, from one
// run of them to the next; else not used.
Value* descriptor(Ir& b, Value* address, bool turned) {
  const uint64_t leading = turned ? machine::kTurnedColumns * kRowBytes >> 4 : 1;
  Value* place = b.CreatePtrToInt(address, b.getInt32Ty());
  Value* units = b.CreateZExt(b.CreateLShr(b.CreateAnd(place, b.getInt32(0x3ffff)), b.getInt32(4)), b.getInt64Ty());
  return b.CreateOr(units, b.getInt64(kSwizzled128 | uint64_t{kGroupBytes >> 4} << 32 | leading << 16));
}

void call(Ir& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> operands = {}) {
  b.CreateCall(llvm::Intrinsic::getOrInsertDeclaration(b.GetInsertBlock()->getModule(), id), operands);
}

}  // namespace

Value* begin_product(Ir& b, const machine::Row& row, const machine::MatrixRow& matrix, Value* acc, Value* a, Value* c) {
  auto* vector = llvm::cast<llvm::FixedVectorType>(acc->getType());
  const unsigned n = vector->getNumElements();
  llvm::Type* element = vector->getElementType();
  const char* kind = element->isFloatTy() ? "f" : "r";
  std::string registers, outputs, inputs;
  for (unsigned i = 0; i < n; ++i) {
    registers += fmt::format("{}${}", i == 0 ? "" : ", ", i);
    outputs += fmt::format("={},", kind);
    inputs += fmt::format("{},", i);
  }
  // Added to what is there, neither factor negated; of 16 bits: K-major or turned.
  std::string tail = matrix.acc == Scalar::i32 ? "" : ", 1, 1";
  if (matrix.a.bits() == 16) tail += fmt::format(", {:d}, {:d}", matrix.a_turned, matrix.b_turned);
  const std::string text = fmt::format("{{ .reg .pred p; setp.ne.b32 p, ${}, 0; {} {{{}}}, ${}, ${}, p{}; }}", n + 2,
                                       row.llvm, registers, n, n + 1, tail);
  std::vector<Value*> operands{descriptor(b, a, matrix.a_turned), descriptor(b, c, matrix.b_turned), b.getInt32(1)};
  std::vector<llvm::Type*> types{b.getInt64Ty(), b.getInt64Ty(), b.getInt32Ty()};
  for (unsigned i = 0; i < n; ++i) {
    operands.push_back(b.CreateExtractElement(acc, uint64_t{i}));
    types.push_back(element);
  }
  llvm::Type* results = llvm::StructType::get(b.getContext(), std::vector<llvm::Type*>(n, element));
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(results, types, false), text,
                                    outputs + "l,l,r," + inputs + "~{memory}", true);
  llvm::CallInst* out = b.CreateCall(code, operands);
  out->setConvergent();
  Value* sum = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < n; ++i) sum = b.CreateInsertElement(sum, b.CreateExtractValue(out, i), uint64_t{i});
  return sum;
}

void settle_products(Ir& b) {
  call(b, llvm::Intrinsic::nvvm_wgmma_fence_sync_aligned);
}
void commit_products(Ir& b) {
  call(b, llvm::Intrinsic::nvvm_wgmma_commit_group_sync_aligned);
}
void wait_products(Ir& b, int groups) {
  call(b, llvm::Intrinsic::nvvm_wgmma_wait_group_sync_aligned, {b.getInt64(static_cast<uint64_t>(groups))});
}
void publish_to_products(Ir& b) {
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(b.getVoidTy(), false), "fence.proxy.async.shared::cta;",
                                    "~{memory}", true);
  b.CreateCall(code)->setConvergent();
}

}  // namespace lumen::emit
