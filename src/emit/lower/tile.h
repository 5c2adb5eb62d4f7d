// Values of the x86 matrix unit (AMX). In loop IR a tile is a vector of 1024 bytes, rows of 64 consecutively; LLVM
// needs its own type, loads and stores for it, and then allocates the tile registers and writes the configuration. Only
// operands and results of the unit's instructions are tiles.
#pragma once

#include <string_view>

#include "emit/lower/types.h"
#include "kernel/machine/machine.h"

namespace lumen::emit {

constexpr int64_t kTileBytes = 1024;

bool is_tile(const machine::Machine& m, loop::VType t);
bool is_tile_intrinsic(std::string_view llvm);

llvm::Value* load_tile(Ir& b, llvm::Type* vector, llvm::Value* pointer);
void store_tile(Ir& b, llvm::Value* vector, llvm::Value* pointer);
llvm::Value* zero_tile(Ir& b, llvm::Type* vector);
// acc, a, b -> acc, all as vectors.
llvm::Value* call_tile(Ir& b, std::string_view llvm, const std::vector<llvm::Value*>& operands);

}  // namespace lumen::emit
