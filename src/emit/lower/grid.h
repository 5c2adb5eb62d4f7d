// A GPU kernel's frame: its signature and attributes, the numbers of block and thread, what lanes and blocks say to
// each other. The only place that tells the two families of GPUs apart, beside target.cpp.
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

  // void symbol(ptr buffers..., ptr status), all in global memory; `threads` of a block.
  llvm::Function* declare(llvm::Module& module, const std::string& symbol, size_t buffers, int threads);
  llvm::Value* block();   // i64
  llvm::Value* thread();  // i64, of the block
  void barrier();
  void wave_barrier();  // the lanes of a wave
  // The next kernel's blocks may begin, when all of this one's have come here.
  void let_follow();
  // Registers for a block of the next kernel beside each, where shared memory has the room.
  void leave_room(llvm::Function* f, int64_t shared_bytes) const;
  // Until the kernel before has ended, and with it all before that.
  void wait_kernels();
  llvm::Value* lane();  // i64, of the wave
  // The value of another lane of the wave, whatever its type.
  llvm::Value* wave_shuffle(llvm::Value* x, llvm::Value* lane);
  // 4, 8 or 16 bytes from global memory to shared; where the machine can, without waiting.
  // `count` (null: all of them), where it is 0: zeros, and nothing is read.
  void copy(llvm::Value* to, llvm::Value* from, int bytes, llvm::Value* count);
  // The same, thread by thread side by side from `to` on, which all of the block have alike. begin_copies_together():
  // once, where all later code of the kernel is behind it.
  void begin_copies_together();
  llvm::CallInst* copy_together(llvm::Value* to, llvm::Value* from, int bytes);
  void commit_copies();
  void wait_copies(int groups);
  // The shared memory of a kernel, `bytes` in all; `dynamic`: its size is the launch's.
  llvm::Value* shared(llvm::Module& module, const std::string& symbol, int64_t bytes, int align, bool dynamic);
  // Records a failure in status = {code, detail} unless one stands there.
  void fail(llvm::Value* status, llvm::Value* code, llvm::Value* detail);

 private:
  void follow(const char* text);
  llvm::Value* call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Value*> operands = {});
  llvm::Value* either(llvm::Intrinsic::ID nvidia, llvm::Intrinsic::ID amd) { return call(nvidia_ ? nvidia : amd); }

  Ir& b_;
  bool nvidia_;
  const machine::Machine& m_;
  int threads_ = 1;
  llvm::Value* wave_number_ = nullptr;  // where threads copy together: of the block, the same for a wave
};

}  // namespace lumen::emit
