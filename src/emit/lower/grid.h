// The frame of a GPU kernel: signature and attributes, block and thread numbers, communication between lanes and
// blocks. Besides target.cpp, the only code that distinguishes the two GPU families.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;  // address spaces, equal in both families

class Grid {
 public:
  Grid(Ir& builder, const llvm::Triple& triple, const machine::Machine& m);

  // void symbol(ptr buffers..., ptr status), all in global memory; `threads` per block.
  llvm::Function* declare(llvm::Module& module, const std::string& symbol, size_t buffers, int threads);
  llvm::Value* block();   // i64
  llvm::Value* thread();  // i64, of the block
  void barrier();
  void wave_barrier();  // the lanes of a wave
  // Programmatic dependent launch: the next kernel's blocks may start when all blocks of this one have arrived here.
  void let_follow();
  // Limits registers so that a block of the next kernel fits next to each one, if shared memory allows it.
  void leave_room(llvm::Function* f, int64_t shared_bytes) const;
  // Waits until the previous kernel, and with it all earlier ones, have ended.
  void wait_kernels();
  llvm::Value* lane();  // i64, within the wave
  // The value of another lane of the wave, whatever its type.
  llvm::Value* wave_shuffle(llvm::Value* x, llvm::Value* lane);
  // Copies 4, 8 or 16 bytes from global to shared memory, asynchronously if the machine can. A `count` of 0 (null:
  // never) writes zeros and reads nothing.
  void copy(llvm::Value* to, llvm::Value* from, int bytes, llvm::Value* count);
  // The same for all threads of a block, each at its thread's offset from the uniform `to`. begin_copies_together():
  // once, at a point that dominates all such copies.
  void begin_copies_together();
  llvm::CallInst* copy_together(llvm::Value* to, llvm::Value* from, int bytes);
  void commit_copies();
  void wait_copies(int groups);
  // The shared memory of a kernel, `bytes` in all; `dynamic`: its size is given at launch.
  llvm::Value* shared(llvm::Module& module, const std::string& symbol, int64_t bytes, int align, bool dynamic);
  // Records a failure in status = {code, detail} unless there is one already.
  void fail(llvm::Value* status, llvm::Value* code, llvm::Value* detail);

 private:
  void follow(const char* text);
  llvm::Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> operands = {});
  llvm::Value* either(llvm::Intrinsic::ID nvidia, llvm::Intrinsic::ID amd) { return call(nvidia_ ? nvidia : amd); }

  Ir& b_;
  bool nvidia_;
  const machine::Machine& m_;
  int threads_ = 1;
  llvm::Value* wave_number_ = nullptr;  // for cooperative copies: number of the wave in the block, uniform
};

}  // namespace lumen::emit
