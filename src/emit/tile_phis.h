// Tiles of a matrix unit that go round loops: kernels say them as vectors, and code generation makes registers of what
// never is anything but a tile. Proved by tests/emit/tile_test.cpp.
#pragma once

#include <llvm/IR/Function.h>

namespace lumen::emit {

// Phis of vectors that only tiles come to, and that are only read as tiles, become phis of tiles; so do casts there and
// back. LLVM has a pass for the same (X86LowerAMXType), which frees what it still reads where several phis begin with
// one tile, as sums at zero do.
void make_tile_phis(llvm::Function& f);

}  // namespace lumen::emit
