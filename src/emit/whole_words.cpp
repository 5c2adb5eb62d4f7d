// See whole_words.h.
#include "emit/whole_words.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/KnownBits.h>

#include <optional>
#include <vector>

namespace lumen::emit {

using llvm::Value;

namespace {

constexpr unsigned kWord = 4;

// The offset of a pointer within its word, if known.
std::optional<unsigned> inside_word(Value* pointer, const llvm::DataLayout& layout) {
  const llvm::KnownBits known = llvm::computeKnownBits(pointer, layout);
  const uint64_t low = kWord - 1;
  if (((known.Zero | known.One).getLoBits(2).getZExtValue() & low) != low) return std::nullopt;
  return static_cast<unsigned>(known.One.getLoBits(2).getZExtValue());
}

void widen(llvm::LoadInst& load, unsigned inside, unsigned bytes) {
  llvm::IRBuilder<> b(&load);
  llvm::Type* word = b.getInt32Ty();
  Value* first = inside == 0 ? load.getPointerOperand()
                             : b.CreateGEP(b.getInt8Ty(), load.getPointerOperand(), b.getInt64(-int64_t{inside}));
  const unsigned words = (inside + bytes + kWord - 1) / kWord, pieces = (bytes + kWord - 1) / kWord;
  std::vector<Value*> loaded;
  for (unsigned i = 0; i < words; ++i) {
    Value* place = i == 0 ? first : b.CreateGEP(b.getInt8Ty(), first, b.getInt64(int64_t{i} * kWord));
    loaded.push_back(b.CreateAlignedLoad(word, place, llvm::Align(kWord)));
  }
  Value* all = llvm::PoisonValue::get(llvm::FixedVectorType::get(word, pieces));
  for (unsigned i = 0; i < pieces; ++i) {
    Value* piece = loaded[i];
    if (inside > 0) {
      Value* above = i + 1 < words ? loaded[i + 1] : b.getInt32(0);
      piece = b.CreateIntrinsic(word, llvm::Intrinsic::fshr, {above, piece, b.getInt32(inside * 8)});
    }
    all = b.CreateInsertElement(all, piece, uint64_t{i});
  }
  Value* bits = b.CreateBitCast(all, b.getIntNTy(pieces * kWord * 8));
  if (bytes % kWord != 0) bits = b.CreateTrunc(bits, b.getIntNTy(bytes * 8));
  load.replaceAllUsesWith(b.CreateBitCast(bits, load.getType()));
  load.eraseFromParent();
}

}  // namespace

void load_whole_words(llvm::Function& f) {
  const llvm::DataLayout& layout = f.getParent()->getDataLayout();
  std::vector<llvm::LoadInst*> loads;
  for (llvm::BasicBlock& block : f)
    for (llvm::Instruction& i : block)
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&i); load && load->isSimple()) loads.push_back(load);
  for (llvm::LoadInst* load : loads) {
    const uint64_t bits = layout.getTypeSizeInBits(load->getType()), bytes = bits / 8;
    if (bits % 8 != 0 || bytes < 2 || load->getType()->isPointerTy()) continue;
    if (load->getAlign().value() >= std::min<uint64_t>(bytes, kWord)) continue;
    if (const auto inside = inside_word(load->getPointerOperand(), layout)) widen(*load, *inside, bytes);
  }
}

}  // namespace lumen::emit
