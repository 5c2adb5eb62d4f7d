// The x86 matrix unit: eight tiles of 16 rows of 64 bytes. Facts and rows only; emit knows how tiles live in registers.
// Proved by tests/kernel/machine/machine_rows_test.cpp, and by tests/ladder/dot_native_test.cpp on a processor that has
// it.
#include "kernel/machine/machine.h"

namespace lumen::machine {

void add_amx(Machine& m) {
  const TileRow bytes{"tile.i8i8.i32", Scalar::i8, Scalar::i8, Scalar::i32, 16, 16, 64};
  const TileRow halves{"tile.bf16bf16.f32", Scalar::bf16, Scalar::bf16, Scalar::f32, 16, 16, 32};
  m.rows.push_back({bytes.row, tile_meaning(bytes), "llvm.x86.tdpbssd.internal", "amx-int8", 16});
  m.rows.push_back({halves.row, tile_meaning(halves), "llvm.x86.tdpbf16ps.internal", "amx-bf16", 16});
  m.tiles = {bytes, halves};
}

}  // namespace lumen::machine
