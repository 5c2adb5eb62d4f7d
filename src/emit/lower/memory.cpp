// See memory.h. Lanes from `count` on are neither read nor written: pages after a buffer may be unmapped. Proved by
// tests/emit/lower_test.cpp.
#include "emit/lower/memory.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Instructions.h>

#include <algorithm>

#include "base/ordinal.h"

namespace lumen::emit {

using llvm::Value;
using loop::VType;

namespace {

llvm::Type* memory_vector(Ir& b, VType t) {
  return with_lanes(memory_type(b.getContext(), t.scalar), t.lanes);
}

std::optional<int64_t> known(Value* count) {
  if (const auto* c = llvm::dyn_cast<llvm::ConstantInt>(count)) return c->getSExtValue();
  return std::nullopt;
}

}  // namespace

Value* MemoryLowering::place(const Memory& m, Value* offset) {
  return b_.CreatePtrAdd(m.base, offset);
}

void MemoryLowering::prefetch(const Memory& m, Value* offset, loop::Cache into) {
  constexpr int kRead = 0, kData = 1;
  const int locality = 3 - ordinal(into);
  Value* address = place(m, offset);
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                     {address, b_.getInt32(kRead), b_.getInt32(locality), b_.getInt32(kData)});
}

template <typename T>
T* MemoryLowering::tag(T* access, const Memory& m) {
  if (m.scope) access->setMetadata(llvm::LLVMContext::MD_alias_scope, m.scope);
  if (m.others) access->setMetadata(llvm::LLVMContext::MD_noalias, m.others);
  if (m.constant) access->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b_.getContext(), {}));
  return access;
}

Value* MemoryLowering::to_register(Value* x, VType t) {
  return t.scalar == Scalar::boolean ? b_.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType())) : x;
}

Value* MemoryLowering::to_memory(Value* x, VType t) {
  return t.scalar == Scalar::boolean ? b_.CreateZExt(x, memory_vector(b_, t)) : x;
}

bool MemoryLowering::has_masks(VType t) const {
  return t.lanes > 1 && masks_ != 0 && masks_ != kLanesApart && 8 * scalar_bytes(t.scalar) >= masks_;
}

// Lane i is active when i < count.
Value* MemoryLowering::mask(int lanes, Value* count) {
  std::vector<int64_t> numbers(lanes);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i;
  Value* bounded = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count, b_.getInt64(0));
  bounded = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, bounded, b_.getInt64(lanes));
  // Compared in 16 bits, so that the mask needs one compare instead of eight.
  llvm::Type* narrow = b_.getInt16Ty();
  std::vector<llvm::Constant*> lane_numbers;
  for (const int64_t n : numbers) lane_numbers.push_back(llvm::ConstantInt::get(narrow, n));
  Value* limit = b_.CreateVectorSplat(lanes, b_.CreateTrunc(bounded, narrow));
  return b_.CreateICmpULT(llvm::ConstantVector::get(lane_numbers), limit);
}

Value* MemoryLowering::slot(llvm::Type* type) {
  llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
  Ir at_entry(&entry, entry.begin());
  return at_entry.CreateAlloca(type);
}

template <typename Whole, typename Part>
void MemoryLowering::whole_or_part(Value* count, int lanes, const Whole& whole, const Part& part) {
  llvm::Function* f = b_.GetInsertBlock()->getParent();
  auto* full = llvm::BasicBlock::Create(b_.getContext(), "whole", f);
  auto* some = llvm::BasicBlock::Create(b_.getContext(), "part", f);
  auto* join = llvm::BasicBlock::Create(b_.getContext(), "join", f);
  b_.CreateCondBr(b_.CreateICmpSGE(count, b_.getInt64(lanes)), full, some);
  b_.SetInsertPoint(full);
  whole();
  b_.CreateBr(join);
  b_.SetInsertPoint(some);
  part();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

template <typename Body>
void MemoryLowering::each_lane(Value* count, int lanes, const Body& body) {
  if (const auto n = known(count)) {
    for (int64_t i = 0; i < std::min<int64_t>(*n, lanes); ++i) body(b_.getInt64(i));
    return;
  }
  llvm::Function* f = b_.GetInsertBlock()->getParent();
  auto* before = b_.GetInsertBlock();
  auto* head = llvm::BasicBlock::Create(b_.getContext(), "lanes", f);
  auto* work = llvm::BasicBlock::Create(b_.getContext(), "lane", f);
  auto* done = llvm::BasicBlock::Create(b_.getContext(), "lanes.done", f);
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(b_.getInt64(0), before);
  b_.CreateCondBr(b_.CreateICmpSLT(i, count), work, done);
  b_.SetInsertPoint(work);
  body(i);
  i->addIncoming(b_.CreateAdd(i, b_.getInt64(1)), b_.GetInsertBlock());
  b_.CreateBr(head);
  b_.SetInsertPoint(done);
}

// Loads lane by lane without a stack slot, which on a GPU would be in slow local memory.
Value* MemoryLowering::load_apart(const Memory& m, VType t, Value* offset, int align, Value* count) {
  llvm::Type* element = memory_type(b_.getContext(), t.scalar);
  const int bytes = scalar_bytes(t.scalar);
  const llvm::Align aligned(static_cast<uint64_t>(std::min({align, m.align, bytes})));
  llvm::Function* f = b_.GetInsertBlock()->getParent();
  Value* out = llvm::Constant::getNullValue(memory_vector(b_, t));
  for (int lane = 0; lane < t.lanes; ++lane) {
    auto* before = b_.GetInsertBlock();
    auto* read = llvm::BasicBlock::Create(b_.getContext(), "read", f);
    auto* join = llvm::BasicBlock::Create(b_.getContext(), "next", f);
    b_.CreateCondBr(b_.CreateICmpSGT(count, b_.getInt64(lane)), read, join);
    b_.SetInsertPoint(read);
    Value* at = b_.CreateAdd(offset, b_.getInt64(lane * bytes));
    Value* x = tag(b_.CreateAlignedLoad(element, place(m, at), aligned), m);
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
    auto* chosen = b_.CreatePHI(element, 2);
    chosen->addIncoming(llvm::Constant::getNullValue(element), before);
    chosen->addIncoming(x, read);
    out = t.lanes == 1 ? chosen : b_.CreateInsertElement(out, chosen, lane);
  }
  return to_register(out, t);
}

void MemoryLowering::store_apart(const Memory& m, VType t, Value* value, Value* offset, int align, Value* count) {
  const int bytes = scalar_bytes(t.scalar);
  const llvm::Align aligned(static_cast<uint64_t>(std::min({align, m.align, bytes})));
  llvm::Function* f = b_.GetInsertBlock()->getParent();
  for (int lane = 0; lane < t.lanes; ++lane) {
    auto* write = llvm::BasicBlock::Create(b_.getContext(), "write", f);
    auto* join = llvm::BasicBlock::Create(b_.getContext(), "next", f);
    b_.CreateCondBr(b_.CreateICmpSGT(count, b_.getInt64(lane)), write, join);
    b_.SetInsertPoint(write);
    Value* at = b_.CreateAdd(offset, b_.getInt64(lane * bytes));
    Value* x = t.lanes == 1 ? value : b_.CreateExtractElement(value, lane);
    tag(b_.CreateAlignedStore(x, place(m, at), aligned), m);
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
  }
}

Value* MemoryLowering::load(const Memory& m, VType t, Value* offset, int align, Value* count) {
  llvm::Type* vector = memory_vector(b_, t);
  const llvm::Align aligned(static_cast<uint64_t>(std::min(align, m.align)));
  const auto whole = [&] { return tag(b_.CreateAlignedLoad(vector, place(m, offset), aligned), m); };
  if (!count) return to_register(whole(), t);
  if (const auto n = known(count)) {
    if (*n >= t.lanes) return to_register(whole(), t);
    if (*n <= 0) return llvm::Constant::getNullValue(register_type(b_.getContext(), t));
  }
  if (masks_ == kLanesApart) return load_apart(m, t, offset, align, count);
  llvm::Constant* zero = llvm::Constant::getNullValue(vector);
  if (has_masks(t))
    return to_register(tag(b_.CreateMaskedLoad(vector, place(m, offset), aligned, mask(t.lanes, count), zero), m), t);
  // One lane at a time through the stack when the machine has no masked move.
  llvm::Type* element = memory_type(b_.getContext(), t.scalar);
  const uint64_t bytes = scalar_bytes(t.scalar);
  Value* temporary = slot(vector);
  const auto part = [&] {
    b_.CreateStore(zero, temporary);
    each_lane(count, t.lanes, [&](Value* lane) {
      Value* at = b_.CreateMul(lane, b_.getInt64(bytes));
      Value* x = tag(b_.CreateAlignedLoad(element, place(m, b_.CreateAdd(offset, at)), llvm::Align(1)), m);
      b_.CreateAlignedStore(x, b_.CreatePtrAdd(temporary, at), llvm::Align(1));
    });
  };
  if (known(count)) {
    part();
  } else {
    whole_or_part(count, t.lanes, [&] { b_.CreateStore(whole(), temporary); }, part);
  }
  return to_register(b_.CreateLoad(vector, temporary), t);
}

void MemoryLowering::store(const Memory& m, VType t, Value* value, Value* offset, int align, Value* count) {
  Value* x = to_memory(value, t);
  const llvm::Align aligned(static_cast<uint64_t>(std::min(align, m.align)));
  const auto whole = [&] { tag(b_.CreateAlignedStore(x, place(m, offset), aligned), m); };
  if (!count) return whole();
  if (const auto n = known(count)) {
    if (*n >= t.lanes) return whole();
    if (*n <= 0) return;
  }
  if (masks_ == kLanesApart) return store_apart(m, t, x, offset, align, count);
  if (has_masks(t)) {
    const auto masked = [&] { tag(b_.CreateMaskedStore(x, place(m, offset), aligned, mask(t.lanes, count)), m); };
    if (scalar_bytes(t.scalar) >= 4) return masked();
    // LLVM turns a one-lane store of a narrowed value into a store of the wide number, which writes past its end: a
    // single lane gets its own scalar store.
    const auto one = [&] {
      tag(b_.CreateAlignedStore(b_.CreateExtractElement(x, uint64_t{0}), place(m, offset), llvm::Align(1)), m);
    };
    if (const auto n = known(count)) return *n == 1 ? one() : masked();
    llvm::Function* f = b_.GetInsertBlock()->getParent();
    auto* single = llvm::BasicBlock::Create(b_.getContext(), "single", f);
    auto* several = llvm::BasicBlock::Create(b_.getContext(), "several", f);
    auto* join = llvm::BasicBlock::Create(b_.getContext(), "join", f);
    b_.CreateCondBr(b_.CreateICmpEQ(count, b_.getInt64(1)), single, several);
    b_.SetInsertPoint(single);
    one();
    b_.CreateBr(join);
    b_.SetInsertPoint(several);
    masked();
    b_.CreateBr(join);
    b_.SetInsertPoint(join);
    return;
  }
  llvm::Type* element = memory_type(b_.getContext(), t.scalar);
  const uint64_t bytes = scalar_bytes(t.scalar);
  Value* temporary = slot(x->getType());
  const auto part = [&] {
    b_.CreateStore(x, temporary);
    each_lane(count, t.lanes, [&](Value* lane) {
      Value* at = b_.CreateMul(lane, b_.getInt64(bytes));
      Value* one = b_.CreateAlignedLoad(element, b_.CreatePtrAdd(temporary, at), llvm::Align(1));
      tag(b_.CreateAlignedStore(one, place(m, b_.CreateAdd(offset, at)), llvm::Align(1)), m);
    });
  };
  if (known(count)) return part();
  whole_or_part(count, t.lanes, whole, part);
}

Value* MemoryLowering::gather(const Memory& m, VType t, Value* offsets) {
  if (t.lanes == 1) return load(m, t, b_.CreateSExt(offsets, b_.getInt64Ty()), 1, nullptr);
  if (scalar_bytes(t.scalar) >= 4 && masks_ != 0 && masks_ != kLanesApart) {
    Value* places = b_.CreateGEP(b_.getInt8Ty(), m.base, offsets);
    return tag(b_.CreateMaskedGather(memory_vector(b_, t), places, llvm::Align(1)), m);
  }
  Value* out = llvm::PoisonValue::get(memory_vector(b_, t));
  for (int lane = 0; lane < t.lanes; ++lane) {
    const uint64_t i = lane;
    Value* offset = b_.CreateSExt(b_.CreateExtractElement(offsets, i), b_.getInt64Ty());
    Value* x = tag(b_.CreateAlignedLoad(memory_type(b_.getContext(), t.scalar), place(m, offset), llvm::Align(1)), m);
    out = b_.CreateInsertElement(out, x, i);
  }
  return to_register(out, t);
}

void MemoryLowering::scatter(const Memory& m, VType t, Value* value, Value* offsets) {
  if (t.lanes == 1) return store(m, t, value, b_.CreateSExt(offsets, b_.getInt64Ty()), 1, nullptr);
  Value* x = to_memory(value, t);
  for (int lane = 0; lane < t.lanes; ++lane) {  // in order: a later lane wins where offsets are equal
    const uint64_t i = lane;
    Value* offset = b_.CreateSExt(b_.CreateExtractElement(offsets, i), b_.getInt64Ty());
    tag(b_.CreateAlignedStore(b_.CreateExtractElement(x, i), place(m, offset), llvm::Align(1)), m);
  }
}

}  // namespace lumen::emit
