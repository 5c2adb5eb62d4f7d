// See tile_phis.h.
#include "emit/tile_phis.h"

#include <llvm/ADT/EquivalenceClasses.h>
#include <llvm/ADT/MapVector.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <vector>

namespace lumen::emit {

using llvm::Instruction;
using llvm::PHINode;
using llvm::Value;

namespace {

constexpr int kRows = 16, kRowBytes = 64;  // of a full tile, the only size kernels use

bool is_cast(const Value* v, llvm::Intrinsic::ID id) {
  const auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
  return call && call->getIntrinsicID() == id;
}
bool is_from_tile(const Value* v) {
  return is_cast(v, llvm::Intrinsic::x86_cast_tile_to_vector);
}
bool is_to_tile(const Value* v) {
  return is_cast(v, llvm::Intrinsic::x86_cast_vector_to_tile);
}
bool is_tile_of_zeros(const Value* v) {
  return is_cast(v, llvm::Intrinsic::x86_tilezero_internal);
}
bool is_zero(const Value* v) {
  if (is_from_tile(v)) return is_tile_of_zeros(llvm::cast<llvm::CallInst>(v)->getArgOperand(0));
  const auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  return constant && (constant->isNullValue() || llvm::isa<llvm::UndefValue>(constant));
}

// Maps each vector phi to the tile phi that replaces it.
using Phis = llvm::MapVector<PHINode*, PHINode*>;

Phis find_phis(llvm::Function& f) {
  Phis found;
  for (llvm::BasicBlock& block : f)
    for (PHINode& phi : block.phis())
      if (phi.getType()->isVectorTy()) found[&phi] = nullptr;
  const auto is_found = [&](Value* v) {
    auto* phi = llvm::dyn_cast<PHINode>(v);
    return phi && found.contains(phi);
  };
  const auto is_other = [&](PHINode* phi) {
    const auto comes = [&](Value* v) { return is_from_tile(v) || is_zero(v) || is_found(v); };
    const auto goes = [&](Value* v) { return is_to_tile(v) || is_found(v); };
    return !llvm::all_of(phi->incoming_values(), comes) || !llvm::all_of(phi->users(), goes);
  };
  for (bool changes = true; changes;) {
    const size_t before = found.size();
    found.remove_if([&](const auto& entry) { return is_other(entry.first); });
    changes = found.size() != before;
  }
  // Phis that only merge zeros and reach no tile are numbers.
  const auto reaches = [&](PHINode* phi) { return llvm::any_of(phi->users(), [](Value* v) { return is_to_tile(v); }); };
  if (llvm::none_of(found, [&](const auto& entry) { return reaches(entry.first); })) found.clear();
  return found;
}

// The accumulator of a product if the phi takes its result, otherwise the phi's operand; null if it is not a phi.
PHINode* phi_below(Value* v) {
  if (is_from_tile(v)) {
    constexpr unsigned kSums = 3;  // an operand of products: rows, bytes of a row, k, sums, factors
    auto* product = llvm::dyn_cast<llvm::CallInst>(llvm::cast<llvm::CallInst>(v)->getArgOperand(0));
    if (!product || product->arg_size() <= kSums || !is_to_tile(product->getArgOperand(kSums))) return nullptr;
    v = llvm::cast<llvm::CallInst>(product->getArgOperand(kSums))->getArgOperand(0);
  }
  return llvm::dyn_cast<PHINode>(v);
}

// The initial zeros of accumulators. Tile registers are copied through memory, so phis of the same accumulator share
// one zero, and different accumulators have different ones.
class Zeros {
 public:
  explicit Zeros(const Phis& phis) {
    for (const auto& [phi, to] : phis) same_.insert(phi);
    for (const auto& [phi, to] : phis)
      for (Value* v : phi->incoming_values())
        if (PHINode* below = phi_below(v); below && phis.contains(below)) same_.unionSets(phi, below);
  }
  Value* at_end(PHINode* phi, llvm::BasicBlock* block) {
    Value*& zero = zeros_[{same_.getLeaderValue(phi), block}];
    if (zero) return zero;
    llvm::IRBuilder<> b(block->getTerminator());
    llvm::Type* tile = llvm::Type::getX86_AMXTy(b.getContext());
    zero = b.CreateIntrinsic(tile, llvm::Intrinsic::x86_tilezero_internal, {b.getInt16(kRows), b.getInt16(kRowBytes)});
    return zero;
  }

 private:
  llvm::EquivalenceClasses<PHINode*> same_;
  llvm::MapVector<std::pair<PHINode*, llvm::BasicBlock*>, Value*> zeros_;
};

}  // namespace

void make_tile_phis(llvm::Function& f) {
  Phis phis = find_phis(f);
  Zeros zeros(phis);
  llvm::Type* tile = llvm::Type::getX86_AMXTy(f.getContext());
  for (auto& [from, to] : phis) to = PHINode::Create(tile, from->getNumIncomingValues(), "", from->getIterator());
  for (auto& [from, to] : phis) {
    for (unsigned i = 0; i < from->getNumIncomingValues(); ++i) {
      Value* v = from->getIncomingValue(i);
      llvm::BasicBlock* block = from->getIncomingBlock(i);
      if (auto* phi = llvm::dyn_cast<PHINode>(v)) {
        to->addIncoming(phis.lookup(phi), block);
      } else if (is_zero(v)) {
        to->addIncoming(zeros.at_end(from, block), block);
      } else {
        to->addIncoming(llvm::cast<llvm::CallInst>(v)->getArgOperand(0), block);
      }
    }
  }
  std::vector<Instruction*> casts;
  for (llvm::BasicBlock& block : f)
    for (Instruction& i : block)
      if (is_to_tile(&i)) casts.push_back(&i);
  for (Instruction* cast : casts) {
    Value* of = cast->getOperand(0);
    auto* phi = llvm::dyn_cast<PHINode>(of);
    Value* as = phi && phis.contains(phi) ? phis.lookup(phi)
                : is_from_tile(of)        ? llvm::cast<llvm::CallInst>(of)->getArgOperand(0)
                                          : nullptr;
    if (!as) continue;
    cast->replaceAllUsesWith(as);
    cast->eraseFromParent();
  }
  for (auto& [from, to] : phis) from->replaceAllUsesWith(llvm::PoisonValue::get(from->getType()));
  for (auto& [from, to] : phis) from->eraseFromParent();
  for (const auto& is_unused : {is_from_tile, is_tile_of_zeros}) {
    std::vector<Instruction*> unused;
    for (llvm::BasicBlock& block : f)
      for (Instruction& i : block)
        if (is_unused(&i) && i.use_empty()) unused.push_back(&i);
    for (Instruction* i : unused) i->eraseFromParent();
  }
}

}  // namespace lumen::emit
