// See grid.h. Proved by tests/emit/gpu_test.cpp.
#include "emit/lower/grid.h"

#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsAMDGPU.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/MDBuilder.h>

#include "base/check.h"
#include "emit/lower/row.h"

namespace lumen::emit {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

Grid::Grid(Ir& builder, const llvm::Triple& triple, const machine::Machine& m)
    : b_(builder), nvidia_(triple.isNVPTX()), m_(m) {
  LUMEN_CHECK(nvidia_ || triple.isAMDGCN(), "{} is no GPU that has a frame", m.triple);
}

llvm::Function* Grid::declare(llvm::Module& module, const std::string& symbol, size_t buffers, int threads) {
  threads_ = threads;
  llvm::LLVMContext& context = module.getContext();
  const std::vector<llvm::Type*> parameters(buffers + 1, llvm::PointerType::get(context, kGlobalSpace));
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), parameters, false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
  f->setDoesNotThrow();
  f->setCallingConv(nvidia_ ? llvm::CallingConv::PTX_Kernel : llvm::CallingConv::AMDGPU_KERNEL);
  const std::string count = std::to_string(threads);
  if (nvidia_) {
    f->addFnAttr("nvvm.maxntid", count);
  } else {
    f->setVisibility(llvm::GlobalValue::ProtectedVisibility);  // kernels of one object are never interposed
    f->addFnAttr("amdgpu-flat-work-group-size", count + "," + count);
    f->addFnAttr("uniform-work-group-size", "true");
    // Declares that no implicit launch argument is used.
    for (const char* unused :
         {"completion-action", "default-queue", "dispatch-id", "dispatch-ptr", "heap-ptr", "hostcall-ptr",
          "implicitarg-ptr", "lds-kernel-id", "multigrid-sync-arg", "queue-ptr", "workgroup-id-y", "workgroup-id-z",
          "workitem-id-y", "workitem-id-z", "flat-scratch-init"})
      f->addFnAttr(std::string("amdgpu-no-") + unused);
  }
  return f;
}

Value* Grid::call(Intrinsic::ID id, llvm::ArrayRef<Value*> operands) {
  llvm::Module* module = b_.GetInsertBlock()->getModule();
  return b_.CreateCall(Intrinsic::getOrInsertDeclaration(module, id), operands);
}

// AMD's lanes execute in lockstep: only the order of their memory accesses must be preserved.
void Grid::wave_barrier() {
  if (nvidia_) {
    call(Intrinsic::nvvm_bar_warp_sync, {b_.getInt32(~0U)});
    return;
  }
  const llvm::SyncScope::ID scope = b_.getContext().getOrInsertSyncScopeID("wavefront");
  b_.CreateFence(llvm::AtomicOrdering::Release, scope);
  call(Intrinsic::amdgcn_wave_barrier);
  b_.CreateFence(llvm::AtomicOrdering::Acquire, scope);
}

// As inline assembly, because LLVM's own intrinsic is modelled as not touching memory.
void Grid::follow(const char* text) {
  if (!m_.follows) return;
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), false);
  b_.CreateCall(type, llvm::InlineAsm::get(type, text, "~{memory}", true));
}
void Grid::let_follow() {
  follow("griddepcontrol.launch_dependents;");
}
void Grid::leave_room(llvm::Function* f, int64_t shared_bytes) const {
  if (nvidia_ && m_.follows && 2 * shared_bytes <= m_.shared_bytes) f->addFnAttr("nvvm.minctasm", "2");
}
void Grid::wait_kernels() {
  follow("griddepcontrol.wait;");
}

Value* Grid::block() {
  Value* x = either(Intrinsic::nvvm_read_ptx_sreg_ctaid_x, Intrinsic::amdgcn_workgroup_id_x);
  return b_.CreateZExt(x, b_.getInt64Ty());
}

Value* Grid::thread() {
  auto* x = llvm::cast<llvm::CallInst>(either(Intrinsic::nvvm_read_ptx_sreg_tid_x, Intrinsic::amdgcn_workitem_id_x));
  x->addRangeRetAttr(llvm::ConstantRange(llvm::APInt(32, 0), llvm::APInt(32, threads_)));
  return b_.CreateZExt(x, b_.getInt64Ty());
}

void Grid::barrier() {
  if (nvidia_) {
    b_.CreateCall(Intrinsic::getOrInsertDeclaration(b_.GetInsertBlock()->getModule(),
                                                    Intrinsic::nvvm_barrier_cta_sync_aligned_all),
                  {b_.getInt32(0)});
    return;
  }
  // Makes earlier writes visible to the lanes of the block after the barrier.
  const llvm::SyncScope::ID scope = b_.getContext().getOrInsertSyncScopeID("workgroup");
  b_.CreateFence(llvm::AtomicOrdering::Release, scope);
  call(Intrinsic::amdgcn_s_barrier);
  b_.CreateFence(llvm::AtomicOrdering::Acquire, scope);
}

Value* Grid::lane() {
  return b_.CreateAnd(thread(), b_.getInt64(m_.wave - 1));
}

Value* Grid::wave_shuffle(Value* x, Value* lane) {
  constexpr unsigned kWord = 32, kAllLanes = ~0U, kWholeWarp = 31;
  llvm::Type* type = x->getType();
  const unsigned bits = type->getPrimitiveSizeInBits().getFixedValue();
  Value* whole = b_.CreateBitCast(x, b_.getIntNTy(bits));
  const unsigned words = (bits + kWord - 1) / kWord;
  whole = b_.CreateZExt(whole, b_.getIntNTy(words * kWord));
  Value* from = b_.CreateTrunc(lane, b_.getInt32Ty());
  std::vector<Value*> got;
  for (Value* word : split_bits(b_, whole, words))
    got.push_back(
        nvidia_ ? call(Intrinsic::nvvm_shfl_sync_idx_i32, {b_.getInt32(kAllLanes), word, from, b_.getInt32(kWholeWarp)})
                : call(Intrinsic::amdgcn_ds_bpermute, {b_.CreateShl(from, b_.getInt32(2)), word}));
  return b_.CreateBitCast(b_.CreateTrunc(join_bits(b_, got, whole->getType()), b_.getIntNTy(bits)), type);
}

void Grid::copy(Value* to, Value* from, int bytes, Value* count) {
  if (m_.async_copies && count) {
    const Intrinsic::ID id = bytes == 16  ? Intrinsic::nvvm_cp_async_cg_shared_global_16_s
                             : bytes == 8 ? Intrinsic::nvvm_cp_async_ca_shared_global_8_s
                                          : Intrinsic::nvvm_cp_async_ca_shared_global_4_s;
    call(id, {to, from, b_.CreateTrunc(count, b_.getInt32Ty())});
    return;
  }
  if (m_.async_copies) {
    const Intrinsic::ID id = bytes == 16  ? Intrinsic::nvvm_cp_async_cg_shared_global_16
                             : bytes == 8 ? Intrinsic::nvvm_cp_async_ca_shared_global_8
                                          : Intrinsic::nvvm_cp_async_ca_shared_global_4;
    call(id, {to, from});
    return;
  }
  const llvm::Align align(static_cast<uint64_t>(bytes));
  llvm::Type* words = llvm::FixedVectorType::get(b_.getInt32Ty(), static_cast<unsigned>(bytes) / 4);
  if (!count) {
    b_.CreateAlignedStore(b_.CreateAlignedLoad(words, from, align), to, align);
    return;
  }
  llvm::Value* mask = b_.CreateVectorSplat(static_cast<unsigned>(bytes) / 4, b_.CreateICmpNE(count, b_.getInt64(0)));
  b_.CreateAlignedStore(b_.CreateMaskedLoad(words, from, align, mask, llvm::Constant::getNullValue(words)), to, align);
}

void Grid::begin_copies_together() {
  if (m_.together_bytes == 0) return;
  Value* number = b_.CreateUDiv(b_.CreateTrunc(thread(), b_.getInt32Ty()), b_.getInt32(m_.wave));
  wave_number_ = b_.CreateIntrinsic(b_.getInt32Ty(), Intrinsic::amdgcn_readfirstlane, {number});
}

// One instruction per wave (LDS direct load): its lanes' bytes are contiguous, from an address uniform in the wave.
// Returns null when the ordinary copy is used.
llvm::CallInst* Grid::copy_together(Value* to, Value* from, int bytes) {
  if (bytes != m_.together_bytes) {
    copy(b_.CreatePtrAdd(to, b_.CreateMul(thread(), b_.getInt64(bytes))), from, bytes, nullptr);
    return nullptr;
  }
  Value* place = b_.CreatePtrAdd(to, b_.CreateMul(wave_number_, b_.getInt32(m_.wave * bytes)));
  return llvm::cast<llvm::CallInst>(
      call(Intrinsic::amdgcn_global_load_lds, {from, place, b_.getInt32(bytes), b_.getInt32(0), b_.getInt32(0)}));
}

void Grid::commit_copies() {
  if (m_.async_copies) call(Intrinsic::nvvm_cp_async_commit_group);
}

void Grid::wait_copies(int groups) {
  if (m_.async_copies) call(Intrinsic::nvvm_cp_async_wait_group, {b_.getInt32(groups)});
  // S_WAITCNT of generation 9: vmcnt(0) lgkmcnt(0), because LLVM finds no reader of the copied data to wait for. A
  // barrier follows, which waits for the lanes' shared memory accesses, too; and scalar loads still in flight in a loop
  // would turn each wait within it into a full one.
  constexpr unsigned kAllLoads = 0x0070;
  if (wave_number_ && groups == 0) call(Intrinsic::amdgcn_s_waitcnt, {b_.getInt32(kAllLoads)});
  // On AMD, copies are loads and stores, or a group completed by the next full wait: keep the scheduler from moving
  // later code before the wait.
  if (!nvidia_ && groups > 0) call(Intrinsic::amdgcn_sched_barrier, {b_.getInt32(0)});
}

Value* Grid::shared(llvm::Module& module, const std::string& symbol, int64_t bytes, int align, bool dynamic) {
  auto* type = llvm::ArrayType::get(b_.getInt8Ty(), dynamic ? 0 : static_cast<uint64_t>(bytes));
  auto* memory = new llvm::GlobalVariable(
      module, type, false, dynamic ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage,
      dynamic ? nullptr : llvm::PoisonValue::get(type), symbol + "_shared", nullptr, llvm::GlobalValue::NotThreadLocal,
      kSharedSpace);
  memory->setAlignment(llvm::Align(static_cast<uint64_t>(align)));
  return memory;
}

void Grid::fail(Value* status, Value* code, Value* detail) {
  const llvm::SyncScope::ID scope = b_.getContext().getOrInsertSyncScopeID(nvidia_ ? "device" : "agent");
  Value* swapped = b_.CreateAtomicCmpXchg(status, b_.getInt64(0), code, llvm::MaybeAlign(8),
                                          llvm::AtomicOrdering::Monotonic, llvm::AtomicOrdering::Monotonic, scope);
  llvm::Function* f = b_.GetInsertBlock()->getParent();
  auto* first = llvm::BasicBlock::Create(b_.getContext(), "first", f);
  auto* join = llvm::BasicBlock::Create(b_.getContext(), "failed.once", f);
  b_.CreateCondBr(b_.CreateExtractValue(swapped, 1), first, join);
  b_.SetInsertPoint(first);
  b_.CreateStore(detail, b_.CreateConstGEP1_64(b_.getInt64Ty(), status, 1));
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

}  // namespace lumen::emit
