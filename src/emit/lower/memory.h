// Loads and stores of vectors at byte offsets: whole, partial (counted), gathered and scattered.
#pragma once

#include "emit/lower/types.h"

namespace lumen::emit {

// A buffer's base address, and the assumptions about it.
struct Memory {
  llvm::Value* base = nullptr;
  int align = 1;                   // of base
  llvm::MDNode* scope = nullptr;   // alias scope of this buffer, null when unknown
  llvm::MDNode* others = nullptr;  // scopes of buffers this one never overlaps
  bool constant = false;           // not written while the kernel runs
};

class MemoryLowering {
 public:
  // `masks`: element sizes in bits for which the target has masked moves (0: none, 32: 32 and 64 bits, 8: all).
  // kLanesApart: lanes of a counted access are tested one by one, as GPU threads do.
  static constexpr int kLanesApart = 1 << 20;
  MemoryLowering(Ir& builder, int masks) : b_(builder), masks_(masks) {}

  llvm::Value* load(const Memory& m, loop::VType t, llvm::Value* offset, int align, llvm::Value* count);
  void store(const Memory& m, loop::VType t, llvm::Value* value, llvm::Value* offset, int align, llvm::Value* count);
  llvm::Value* gather(const Memory& m, loop::VType t, llvm::Value* offsets);
  void scatter(const Memory& m, loop::VType t, llvm::Value* value, llvm::Value* offsets);
  void prefetch(const Memory& m, llvm::Value* offset, loop::Cache into);
  llvm::Value* place(const Memory& m, llvm::Value* offset);  // the address

 private:
  llvm::Value* to_register(llvm::Value* x, loop::VType t);
  llvm::Value* to_memory(llvm::Value* x, loop::VType t);
  llvm::Value* mask(int lanes, llvm::Value* count);
  bool has_masks(loop::VType t) const;
  // Runs `body` for lanes 0 .. count-1, count below `lanes`.
  template <typename Body>
  void each_lane(llvm::Value* count, int lanes, const Body& body);
  template <typename Whole, typename Part>
  void whole_or_part(llvm::Value* count, int lanes, const Whole& whole, const Part& part);
  llvm::Value* load_apart(const Memory& m, loop::VType t, llvm::Value* offset, int align, llvm::Value* count);
  void store_apart(const Memory& m, loop::VType t, llvm::Value* value, llvm::Value* offset, int align,
                   llvm::Value* count);
  llvm::Value* slot(llvm::Type* type);  // stack memory of the function
  template <typename T>
  T* tag(T* access, const Memory& m);

  Ir& b_;
  int masks_;
};

}  // namespace lumen::emit
