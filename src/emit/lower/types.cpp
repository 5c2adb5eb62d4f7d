// See types.h. Proved by tests/emit/lower_test.cpp.
#include "emit/lower/types.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>

#include "base/check.h"

namespace lumen::emit {
namespace {

llvm::Constant* real(llvm::LLVMContext& context, Scalar s, double x) {
  switch (s) {
    case Scalar::f16:
      return llvm::ConstantFP::get(
          context, llvm::APFloat(llvm::APFloat::IEEEhalf(), llvm::APInt(16, f32_to_f16(static_cast<float>(x)))));
    case Scalar::bf16:
      return llvm::ConstantInt::get(llvm::Type::getInt16Ty(context), f32_to_bf16(static_cast<float>(x)));
    case Scalar::f32:
      return llvm::ConstantFP::get(context, llvm::APFloat(static_cast<float>(x)));
    default:
      return llvm::ConstantFP::get(context, llvm::APFloat(x));
  }
}

llvm::Constant* integer(llvm::LLVMContext& context, Scalar s, int64_t x) {
  auto* type = llvm::cast<llvm::IntegerType>(scalar_type(context, s));
  return llvm::ConstantInt::get(context, llvm::APInt(64, x).trunc(type->getBitWidth()));
}

llvm::Constant* repeat(llvm::Constant* x, int lanes) {
  if (lanes == 1) return x;
  return llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(lanes), x);
}

}  // namespace

llvm::Type* scalar_type(llvm::LLVMContext& context, Scalar s) {
  switch (s) {
    case Scalar::f16:
      return llvm::Type::getHalfTy(context);
    case Scalar::f32:
      return llvm::Type::getFloatTy(context);
    case Scalar::f64:
      return llvm::Type::getDoubleTy(context);
    default:
      return llvm::IntegerType::get(context, scalar_bits(s));
  }
}

llvm::Type* memory_type(llvm::LLVMContext& context, Scalar s) {
  return s == Scalar::boolean ? llvm::Type::getInt8Ty(context) : scalar_type(context, s);
}

llvm::Type* with_lanes(llvm::Type* scalar, int lanes) {
  return lanes == 1 ? scalar : llvm::FixedVectorType::get(scalar, static_cast<unsigned>(lanes));
}

llvm::Type* register_type(llvm::LLVMContext& context, loop::VType t) {
  return with_lanes(scalar_type(context, t.scalar), t.lanes);
}

llvm::Constant* splat_real(llvm::LLVMContext& context, loop::VType t, double x) {
  return repeat(real(context, t.scalar, x), t.lanes);
}

llvm::Constant* splat_integer(llvm::LLVMContext& context, loop::VType t, int64_t x) {
  return repeat(integer(context, t.scalar, x), t.lanes);
}

llvm::Constant* constant(llvm::LLVMContext& context, const loop::Instr& instr) {
  const loop::VType t = instr.type;
  if (instr.data.size() == 1) return splat_real(context, t, instr.data[0]);
  if (instr.integers.size() == 1) return splat_integer(context, t, instr.integers[0]);
  std::vector<llvm::Constant*> lanes;
  for (const double x : instr.data) lanes.push_back(real(context, t.scalar, x));
  for (const int64_t x : instr.integers) lanes.push_back(integer(context, t.scalar, x));
  LUMEN_CHECK(std::ssize(lanes) == t.lanes, "{} numbers for {} lanes", lanes.size(), t.lanes);
  return llvm::ConstantVector::get(lanes);
}

}  // namespace lumen::emit
