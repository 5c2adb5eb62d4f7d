// Outer products of Arm's matrix unit (SME). Kernels have sums as whole tiles and factors as vectors; here sums become
// the numbered tiles of ZA, and every run of such instructions becomes a separate function, the only code that executes
// in streaming mode: there vectors have another length, and gathers and Advanced SIMD are unavailable. Proved by
// tests/emit/streaming_test.cpp (instructions) and tests/ladder/dot_streaming_test.cpp (bits, under an emulator).
//
// May include: base, kernel/loop, kernel/machine.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <map>
#include <memory>
#include <vector>

#include "emit/streaming/tile_places.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

class StreamingLowering {
 public:
  // Null if the kernel has no outer products.
  static std::unique_ptr<StreamingLowering> find(llvm::IRBuilder<>& b, const loop::Kernel& k,
                                                 const machine::Machine& m);

  // Called around the instructions of a region: before instruction `index` is lowered, and after it.
  void enter(const loop::Region& region, size_t index);
  void leave(const loop::Region& region, size_t index);

  // Instructions that read or write tiles, or load factors. `address`: of a load or a store to memory.
  bool handles(const loop::Instr& instr) const { return places_.touches(instr); }
  void lower(const loop::Instr& instr, llvm::Value* address);
  bool has_address(const loop::Instr& instr) const {
    return instr.buffer >= 0 && !places_.tile_of_buffer(instr.buffer);
  }
  // Reports a store to memory by other code.
  void note_store() { ++stores_; }

  // Outlines the runs into functions, once the kernel is complete.
  void extract();

 private:
  StreamingLowering(llvm::IRBuilder<>& b, const machine::Machine& m, TilePlaces places);

  // The location of a tile of sums. It is read at its use, so its content must not have changed since.
  struct Sum {
    enum class In : uint8_t { zero, memory, tile } in = In::zero;
    llvm::Value* pointer = nullptr;  // memory
    int tile = 0;
    int64_t when = 0;  // number of writes to memory, or to the tile, before
  };
  struct Run {
    llvm::BasicBlock *first, *after;
  };

  void call(llvm::Intrinsic::ID id, llvm::ArrayRef<llvm::Type*> types, llvm::ArrayRef<llvm::Value*> arguments);
  llvm::Value* all_of(llvm::Type* vector);  // a predicate
  void each_row(llvm::Intrinsic::ID id, int tile, llvm::Value* pointer);
  void put(int tile, const Sum& sum);
  void multiply(const loop::Instr& instr);
  void store(const loop::Instr& instr, llvm::Value* address);
  bool is_current(const Sum& sum) const;

  llvm::IRBuilder<>& b_;
  const machine::Machine& machine_;
  TilePlaces places_;
  std::map<loop::ValueId, Sum> sums_;
  std::map<loop::ValueId, llvm::Value*> factors_;
  std::map<int, int64_t> written_;  // by tile
  int64_t stores_ = 0;
  llvm::BasicBlock* first_ = nullptr;  // of the current run
  std::vector<Run> runs_;
};

}  // namespace lumen::emit
