// Loop-carried tiles of a matrix unit: kernels represent them as vectors, and code generation keeps values that are
// always tiles in tile registers. Proved by tests/emit/tile_test.cpp.
#pragma once

#include <llvm/IR/Function.h>

namespace lumen::emit {

// Vector phis with only tiles as operands and uses become tile phis; the casts between them disappear. LLVM has a pass
// for this (X86LowerAMXType), which uses a value after freeing it when several phis start with one tile, as zeroed
// accumulators do.
void make_tile_phis(llvm::Function& f);

}  // namespace lumen::emit
