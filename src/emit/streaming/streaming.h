// Outer products of Arm's matrix unit. Kernels say sums as whole tiles and factors as vectors; here sums become the
// numbered tiles of ZA, and every run of instructions about them a function of its own, the only code that executes in
// streaming mode: there vectors have another length, and gathers and Advanced SIMD do not exist.
// Proved by tests/emit/streaming_test.cpp (instructions) and tests/ladder/dot_streaming_test.cpp (bits, under an
// emulator).
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
  // Null where the kernel has no outer products.
  static std::unique_ptr<StreamingLowering> find(llvm::IRBuilder<>& b, const loop::Kernel& k,
                                                 const machine::Machine& m);

  // Around the instructions of a region, one after another: number `index` is about to be lowered, or all are.
  void enter(const loop::Region& region, size_t index);
  void leave(const loop::Region& region, size_t index);

  // Instructions that read or write tiles, or load factors. `address`: of what a load or a store touches, where it
  // is memory.
  bool handles(const loop::Instr& instr) const { return places_.touches(instr); }
  void lower(const loop::Instr& instr, llvm::Value* address);
  bool has_address(const loop::Instr& instr) const {
    return instr.buffer >= 0 && !places_.tile_of_buffer(instr.buffer);
  }
  // Memory has been written otherwise.
  void note_store() { ++stores_; }

  // Makes functions of the runs, once the kernel is complete.
  void extract();

 private:
  StreamingLowering(llvm::IRBuilder<>& b, const machine::Machine& m, TilePlaces places);

  // What a value that is a tile of sums stands for. It is read where it is used, so nothing may have changed until
  // then.
  struct Sum {
    enum class In : uint8_t { zero, memory, tile } in = In::zero;
    llvm::Value* pointer = nullptr;  // memory
    int tile = 0;
    int64_t when = 0;  // writes to memory, or to the tile, before
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
  llvm::BasicBlock* first_ = nullptr;  // of the run at hand
  std::vector<Run> runs_;
};

}  // namespace lumen::emit
