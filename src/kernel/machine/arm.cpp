// The AArch64 machines: 128 bit vectors, with and without the four-way integer dot. Facts and rows only.
// Proved by tests/ladder/dot_arm_test.cpp under an emulator.
#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

// Any Armv8-A processor.
Machine neon() {
  Machine m;
  m.name = "neon";
  m.triple = "aarch64-linux-gnu";
  m.cpu = "generic";
  m.features = "+neon";
  m.vector_bits = 128;
  m.vector_registers = 32;
  m.l2_bytes = 512 << 10;
  m.tier = Tier::emulated;
  m.rows.push_back(
      {"lookup16.u8x16", lookup_meaning("lookup16.u8x16", 16, false), "llvm.aarch64.neon.tbl1.v16i8", "neon", 0.5});
  m.rows.push_back({"mulwide.i8i8.i16x8", widening_product_meaning("mulwide.i8i8.i16x8", 8),
                    "llvm.aarch64.neon.smull.v8i16", "neon", 0.5});
  m.rows.push_back({"addpairs.i16.i32x4", sum_pairs_meaning("addpairs.i16.i32x4", 4),
                    "llvm.aarch64.neon.saddlp.v4i32.v8i16", "neon", 0.5});
  m.dots.push_back(
      {"mulwide.i8i8.i16x8", Scalar::i8, Scalar::i8, Scalar::i32, 2, 4, false, "addpairs.i16.i32x4", false, 128});
  return m;
}

Machine neon_dotprod() {
  Machine m = neon();
  m.name = "neon-dotprod";
  m.features += ",+dotprod";
  const DotRow d{"dot4.i8i8.i32x4", Scalar::i8, Scalar::i8, Scalar::i32, 4, 4, true, "", false, 128};
  m.rows.push_back({d.row, dot_meaning(d.row, d), "llvm.aarch64.neon.sdot.v4i32.v16i8", "dotprod", 0.5});
  m.dots.insert(m.dots.begin(), d);
  return m;
}

}  // namespace

std::vector<Machine> arm_machines() {
  return {neon(), neon_dotprod()};
}

}  // namespace lumen::machine
