// See streaming.h. ZA and streaming mode are on only while a run executes (AAPCS64: a function with a private ZA and a
// streaming body). A caller with its own ZA has set TPIDR2_EL0, and its ZA is saved first, by the routine below, which
// the procedure call standard specifies (__arm_tpidr2_save): no library loaded in this process provides it.
#include "emit/streaming/streaming.h"

#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Transforms/Utils/CodeExtractor.h>

#include "base/check.h"

namespace lumen::emit {

using llvm::Value;
using loop::Instr;
using loop::Op;
namespace Intrinsic = llvm::Intrinsic;

namespace {

constexpr unsigned kGranule = 128;  // bits of a scalable vector at scale 1

// TPIDR2_EL0 points to a block: an address, and the number of ZA rows to save there. Only x14 to x17 may change.
constexpr const char* kSave = R"(
  .text
  .p2align 2
  .type __arm_tpidr2_save,@function
__arm_tpidr2_save:
  mrs x14, TPIDR2_EL0
  cbz x14, 2f
  ldrh w17, [x14, #8]
  cbz w17, 2f
  ldr x16, [x14]
  mov w15, wzr
1:
  str za[w15, 0], [x16]
  addsvl x16, x16, #1
  add w15, w15, #1
  cmp w15, w17
  b.lo 1b
2:
  ret
  .size __arm_tpidr2_save, . - __arm_tpidr2_save
)";

llvm::Type* vector_of(llvm::LLVMContext& c, Scalar s) {
  llvm::Type* one = s == Scalar::f32    ? llvm::Type::getFloatTy(c)
                    : s == Scalar::bf16 ? llvm::Type::getBFloatTy(c)
                    : s == Scalar::f16  ? llvm::Type::getHalfTy(c)
                                        : llvm::Type::getIntNTy(c, scalar_bits(s));
  return llvm::ScalableVectorType::get(one, kGranule / scalar_bits(s));
}

}  // namespace

std::unique_ptr<StreamingLowering> StreamingLowering::find(llvm::IRBuilder<>& b, const loop::Kernel& k,
                                                           const machine::Machine& m) {
  if (m.tiles.empty() || !m.triple.starts_with("aarch64")) return nullptr;
  TilePlaces places(k, m);
  if (places.empty()) return nullptr;
  return std::unique_ptr<StreamingLowering>(new StreamingLowering(b, m, std::move(places)));
}

StreamingLowering::StreamingLowering(llvm::IRBuilder<>& b, const machine::Machine& m, TilePlaces places)
    : b_(b), machine_(m), places_(std::move(places)) {}

void StreamingLowering::enter(const loop::Region& region, size_t index) {
  for (const TilePlaces::Run& run : places_.runs(region)) {
    if (run.first != index) continue;
    first_ = llvm::BasicBlock::Create(b_.getContext(), "streaming", b_.GetInsertBlock()->getParent());
    b_.CreateBr(first_);
    b_.SetInsertPoint(first_);
  }
}

void StreamingLowering::leave(const loop::Region& region, size_t index) {
  for (const TilePlaces::Run& run : places_.runs(region)) {
    if (run.last != index) continue;
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "streamed", b_.GetInsertBlock()->getParent());
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    runs_.push_back({first_, after});
    first_ = nullptr;
  }
}

void StreamingLowering::lower(const Instr& instr, Value* address) {
  if (instr.op == Op::constant_) {
    sums_[instr.result] = {};
  } else if (instr.op == Op::store_) {
    store(instr, address);
  } else if (instr.op == Op::inst_) {
    multiply(instr);
  } else if (places_.is_factor(instr.result)) {
    const Scalar s = instr.type.scalar;
    const llvm::Align align{uint64_t(scalar_bytes(s))};
    factors_[instr.result] = b_.CreateAlignedLoad(vector_of(b_.getContext(), s), address, align);
  } else if (const auto tile = places_.tile_of_buffer(instr.buffer)) {
    sums_[instr.result] = {Sum::In::tile, nullptr, *tile, written_[*tile]};
  } else {
    sums_[instr.result] = {Sum::In::memory, address, 0, stores_};
  }
}

bool StreamingLowering::is_current(const Sum& sum) const {
  if (sum.in == Sum::In::memory) return sum.when == stores_;
  return sum.in == Sum::In::zero || sum.when == written_.at(sum.tile);
}

void StreamingLowering::call(Intrinsic::ID id, llvm::ArrayRef<llvm::Type*> types, llvm::ArrayRef<Value*> arguments) {
  b_.CreateCall(Intrinsic::getOrInsertDeclaration(b_.GetInsertBlock()->getModule(), id, types), arguments);
}

Value* StreamingLowering::all_of(llvm::Type* vector) {
  return llvm::ConstantVector::getSplat(llvm::cast<llvm::VectorType>(vector)->getElementCount(), b_.getTrue());
}

// Rows of a tile are consecutive in memory.
void StreamingLowering::each_row(Intrinsic::ID id, int tile, Value* pointer) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(b_.getContext(), "row", before->getParent());
  auto* after = llvm::BasicBlock::Create(b_.getContext(), "rows", before->getParent());
  const machine::TileRow& row = machine_.tiles.front();
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(b_.getInt64(0), before);
  Value* at = b_.CreatePtrAdd(pointer, b_.CreateNSWMul(i, b_.getInt64(4 * uint64_t(row.columns))));
  Value* all = all_of(vector_of(b_.getContext(), Scalar::f32));
  call(id, {}, {all, at, b_.getInt32(uint32_t(tile)), b_.CreateTrunc(i, b_.getInt32Ty())});
  Value* next = b_.CreateNSWAdd(i, b_.getInt64(1));
  i->addIncoming(next, body);
  b_.CreateCondBr(b_.CreateICmpSLT(next, b_.getInt64(uint64_t(row.rows))), body, after);
  b_.SetInsertPoint(after);
}

void StreamingLowering::put(int tile, const Sum& sum) {
  LUMEN_CHECK(is_current(sum), "a tile of sums that was overwritten before it was read");
  if (sum.in == Sum::In::tile) {
    LUMEN_CHECK(sum.tile == tile, "tile {} where tile {} is meant", sum.tile, tile);
    return;
  }
  constexpr uint32_t kParts = 0x11;  // of tile 0, as tiles of 64 bits
  ++written_[tile];
  if (sum.in == Sum::In::zero) return call(Intrinsic::aarch64_sme_zero, {}, {b_.getInt32(kParts << uint32_t(tile))});
  each_row(Intrinsic::aarch64_sme_ld1w_horiz, tile, sum.pointer);
}

void StreamingLowering::multiply(const Instr& instr) {
  const machine::Row* row = machine_.find_row(instr.row);
  LUMEN_CHECK(row, "machine {} has no instruction '{}'", machine_.name, instr.row);
  const Intrinsic::ID id = Intrinsic::lookupIntrinsicID(row->llvm);
  LUMEN_CHECK(id != Intrinsic::not_intrinsic, "row {}: LLVM does not have {}", row->name, row->llvm);
  const int tile = places_.tile_of_product(instr);
  put(tile, sums_.at(instr.operands[0]));
  Value *a = factors_.at(instr.operands[1]), *c = factors_.at(instr.operands[2]);
  LUMEN_CHECK(a->getType() == c->getType(), "factors of two types");
  Value* all = all_of(a->getType());
  call(id, {a->getType()}, {b_.getInt32(uint32_t(tile)), all, all, a, c});
  sums_[instr.result] = {Sum::In::tile, nullptr, tile, ++written_[tile]};
}

void StreamingLowering::store(const Instr& instr, Value* address) {
  const Sum& sum = sums_.at(instr.operands[0]);
  if (const auto tile = places_.tile_of_buffer(instr.buffer)) return put(*tile, sum);
  LUMEN_CHECK(sum.in == Sum::In::tile && is_current(sum), "sums that are stored and in no tile");
  each_row(Intrinsic::aarch64_sme_st1w_horiz, sum.tile, address);
  note_store();
}

void StreamingLowering::extract() {
  for (const Run& run : runs_) {
    llvm::Function* kernel = run.first->getParent();
    std::vector<llvm::BasicBlock*> blocks;  // in order of creation
    for (auto at = run.first->getIterator(); &*at != run.after; ++at) blocks.push_back(&*at);
    llvm::CodeExtractorAnalysisCache known(*kernel);
    llvm::CodeExtractor extractor(blocks);
    llvm::Function* f = extractor.extractCodeRegion(known);
    LUMEN_CHECK(f, "a run of outer products cannot be a function");
    f->setName(kernel->getName() + "_streaming");
    f->setLinkage(llvm::GlobalValue::InternalLinkage);
    f->setDoesNotThrow();
    f->addFnAttr(llvm::Attribute::NoInline);
    f->addFnAttr("aarch64_pstate_sm_body");
    f->addFnAttr("aarch64_new_za");
    // LLVM 22 calls the routine that saves a caller's ZA, yet treats the function as a leaf, which does not save the
    // link register; a frame saves it.
    f->addFnAttr("frame-pointer", "all");
    const unsigned scale = unsigned(machine_.tiles.front().rows) * 32 / kGranule;
    f->addFnAttr(llvm::Attribute::getWithVScaleRangeArgs(b_.getContext(), scale, scale));
    LUMEN_CHECK(!llvm::verifyFunction(*f), "function {}", f->getName().str());
  }
  llvm::Module* module = b_.GetInsertBlock()->getModule();
  if (module->getModuleInlineAsm().empty()) module->appendModuleInlineAsm(kSave);
}

}  // namespace lumen::emit
