// See wgmma.h. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate" and "Matrix descriptor format":
// address, and stride from one group of eight rows to the next, in units of 16 bytes; the 128-byte swizzle. Proved by
// tests/emit/gpu_test.cpp.
#include "emit/lower/wgmma.h"

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "emit/lower/grid.h"

namespace lumen::emit {

using llvm::Value;

namespace {

constexpr uint64_t kRowBytes = 128, kGroupBytes = 8 * kRowBytes, kSwizzled128 = uint64_t{1} << 62;

// Stride: from one group of eight 128-byte rows to the next. Leading: for transposed operands, from one column block of
// rows to the next; otherwise unused.
// Addresses that differ by a constant share the variable part: shared memory is smaller than the range of the address
// field.
Value* descriptor(Ir& b, Value* address, bool transposed) {
  uint64_t further = 0;
  if (auto* place = llvm::dyn_cast<llvm::GetElementPtrInst>(address);
      place && place->getNumIndices() == 1 && place->getSourceElementType()->isIntegerTy(8)) {
    auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(place->getOperand(1));
    auto* constant = sum && sum->getOpcode() == llvm::Instruction::Add
                         ? llvm::dyn_cast<llvm::ConstantInt>(sum->getOperand(1))
                         : nullptr;
    if (constant && constant->getZExtValue() < (uint64_t{1} << 18) && constant->getZExtValue() % 16 == 0) {
      further = constant->getZExtValue() >> 4;
      address = b.CreateGEP(b.getInt8Ty(), place->getPointerOperand(), sum->getOperand(0));
    }
  }
  const uint64_t leading = transposed ? machine::kTransposedColumns * kRowBytes >> 4 : 1;
  Value* place = b.CreatePtrToInt(address, b.getInt32Ty());
  Value* units = b.CreateZExt(b.CreateLShr(b.CreateAnd(place, b.getInt32(0x3ffff)), b.getInt32(4)), b.getInt64Ty());
  Value* whole = b.CreateOr(units, b.getInt64(kSwizzled128 | uint64_t{kGroupBytes >> 4} << 32 | leading << 16));
  return further == 0 ? whole : b.CreateAdd(whole, b.getInt64(further));
}

// Inline assembly that returns the elements of a vector.
Value* call_for_vector(Ir& b, llvm::FixedVectorType* vector, const std::vector<Value*>& operands,
                       const std::vector<llvm::Type*>& types, const std::string& text, const std::string& constraints) {
  llvm::Type* results = llvm::StructType::get(
      b.getContext(), std::vector<llvm::Type*>(vector->getNumElements(), vector->getElementType()));
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(results, types, false), text, constraints, true);
  llvm::CallInst* out = b.CreateCall(code, operands);
  out->setConvergent();
  Value* all = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i)
    all = b.CreateInsertElement(all, b.CreateExtractValue(out, i), uint64_t{i});
  return all;
}

void call(Ir& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> operands = {}) {
  b.CreateCall(llvm::Intrinsic::getOrInsertDeclaration(b.GetInsertBlock()->getModule(), id), operands);
}

}  // namespace

Value* begin_product(Ir& b, const machine::Row& row, const machine::MatrixRow& matrix, Value* acc, Value* a, Value* c,
                     bool follows) {
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
  std::vector<Value*> operands;
  std::string left, places;
  unsigned next = n;
  const auto add = [&](Value* x, const char* place) {
    operands.push_back(x);
    places += fmt::format("{},", place);
    return fmt::format("${}", next++);
  };
  if (matrix.a_in_registers) {
    Value* words = b.CreateBitCast(a, llvm::FixedVectorType::get(b.getInt32Ty(), 4));
    for (uint64_t i = 0; i < 4; ++i) left += (i == 0 ? "{" : ", ") + add(b.CreateExtractElement(words, i), "r");
    left += "}";
  } else {
    left = add(descriptor(b, a, matrix.a_transposed), "l");
  }
  const std::string right = add(descriptor(b, c, matrix.b_transposed), "l");
  const bool fresh = llvm::isa<llvm::ConstantAggregateZero>(acc);
  const std::string adds = add(b.getInt32(fresh ? 0 : 1), "r");
  // Neither factor negated; for 16 bits: K-major or transposed.
  std::string tail = matrix.acc == Scalar::i32 ? "" : ", 1, 1";
  if (matrix.a.bits() == 16 && !matrix.a_in_registers) tail += fmt::format(", {:d}", matrix.a_transposed);
  if (matrix.a.bits() == 16) tail += fmt::format(", {:d}", matrix.b_transposed);
  // The fence is in the same assembly text, so that nothing can be scheduled between it and the product.
  const std::string text =
      fmt::format("{{ .reg .pred p; setp.ne.b32 p, {}, 0; {}{} {{{}}}, {}, {}, p{}; }}", adds,
                  follows ? "" : "wgmma.fence.sync.aligned; ", row.llvm, registers, left, right, tail);
  std::vector<llvm::Type*> types;
  for (const Value* x : operands) types.push_back(x->getType());
  for (unsigned i = 0; i < n; ++i) {
    operands.push_back(fresh ? llvm::UndefValue::get(element) : b.CreateExtractElement(acc, uint64_t{i}));
    types.push_back(element);
  }
  return call_for_vector(b, vector, operands, types, text, outputs + places + inputs + "~{memory}");
}

Value* ready_sums(Ir& b, Value* x) {
  auto* vector = llvm::cast<llvm::FixedVectorType>(x->getType());
  const bool floats = vector->getElementType()->isFloatTy();
  const unsigned bits = vector->getPrimitiveSizeInBits().getFixedValue();
  auto* words =
      floats ? vector : llvm::FixedVectorType::get(b.getInt32Ty(), bits / b.getInt32Ty()->getPrimitiveSizeInBits());
  Value* whole = b.CreateBitCast(x, words);
  std::vector<Value*> operands;
  std::string outputs, inputs;
  for (unsigned i = 0; i < words->getNumElements(); ++i) {
    operands.push_back(b.CreateExtractElement(whole, uint64_t{i}));
    outputs += floats ? "=f," : "=r,";
    inputs += fmt::format("{},", i);
  }
  const std::vector<llvm::Type*> types(operands.size(), words->getElementType());
  return b.CreateBitCast(call_for_vector(b, words, operands, types, "", outputs + inputs + "~{memory}"), vector);
}

void commit_products(Ir& b) {
  call(b, llvm::Intrinsic::nvvm_wgmma_commit_group_sync_aligned);
}
void wait_products(Ir& b, int groups) {
  call(b, llvm::Intrinsic::nvvm_wgmma_wait_group_sync_aligned, {b.getInt64(groups)});
}
void publish_to_products(Ir& b) {
  auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(b.getVoidTy(), false), "fence.proxy.async.shared::cta;",
                                    "~{memory}", true);
  b.CreateCall(code)->setConvergent();
}

}  // namespace lumen::emit
