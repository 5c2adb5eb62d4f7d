// See tile.h. Proved by tests/emit/tile_test.cpp (instructions) and tests/ladder (bits, on processors with the unit).
#include "emit/lower/tile.h"

#include <llvm/IR/IntrinsicsX86.h>

#include "base/check.h"

namespace lumen::emit {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

namespace {

constexpr int kRows = 16, kRowBytes = 64;

llvm::Function* declare(Ir& b, Intrinsic::ID id, llvm::ArrayRef<llvm::Type*> types = {}) {
  return Intrinsic::getOrInsertDeclaration(b.GetInsertBlock()->getModule(), id, types);
}

Value* to_tile(Ir& b, Value* vector) {
  return b.CreateCall(declare(b, Intrinsic::x86_cast_vector_to_tile, {vector->getType()}), {vector});
}

Value* to_vector(Ir& b, Value* tile, llvm::Type* vector) {
  return b.CreateCall(declare(b, Intrinsic::x86_cast_tile_to_vector, {vector}), {tile});
}

}  // namespace

bool is_tile(const machine::Machine& m, loop::VType t) {
  return !m.tiles.empty() && m.triple.starts_with("x86") && t.lanes * scalar_bytes(t.scalar) == kTileBytes;
}

bool is_tile_intrinsic(std::string_view llvm) {
  return llvm.starts_with("llvm.x86.tdp") && llvm.ends_with(".internal");
}

Value* load_tile(Ir& b, llvm::Type* vector, Value* pointer) {
  Value* tile = b.CreateCall(declare(b, Intrinsic::x86_tileloadd64_internal),
                             {b.getInt16(kRows), b.getInt16(kRowBytes), pointer, b.getInt64(kRowBytes)});
  return to_vector(b, tile, vector);
}

void store_tile(Ir& b, Value* vector, Value* pointer) {
  b.CreateCall(declare(b, Intrinsic::x86_tilestored64_internal),
               {b.getInt16(kRows), b.getInt16(kRowBytes), pointer, b.getInt64(kRowBytes), to_tile(b, vector)});
}

Value* zero_tile(Ir& b, llvm::Type* vector) {
  Value* tile = b.CreateCall(declare(b, Intrinsic::x86_tilezero_internal), {b.getInt16(kRows), b.getInt16(kRowBytes)});
  return to_vector(b, tile, vector);
}

Value* call_tile(Ir& b, std::string_view llvm, const std::vector<Value*>& operands) {
  LUMEN_CHECK(operands.size() < 3 || operands[1] != operands[2], "a tile as both factors, which the processor refuses");
  std::vector<Value*> arguments{b.getInt16(kRows), b.getInt16(kRowBytes), b.getInt16(kRowBytes)};
  for (Value* x : operands) arguments.push_back(to_tile(b, x));
  Value* tile = b.CreateCall(declare(b, Intrinsic::lookupIntrinsicID(llvm)), arguments);
  return to_vector(b, tile, operands[0]->getType());
}

}  // namespace lumen::emit
