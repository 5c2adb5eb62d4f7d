// The AArch64 machines: 128 bit vectors without and with the four-way integer dots, and scalable vectors at the lengths
// that processors have. Facts and rows only.
// Proved by tests/ladder/dot_arm_test.cpp under an emulator.
#include <fmt/format.h>

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
  m.costs.codes.product = 0.65;  // products of bytes widen in one instruction, and additions of pairs issue beside it
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

// Signed and unsigned bytes together: codes 0..255 need no bias.
Machine neon_i8mm() {
  Machine m = neon_dotprod();
  m.name = "neon-i8mm";
  m.features += ",+i8mm";
  const DotRow d{"dot4.u8i8.i32x4", Scalar::u8, Scalar::i8, Scalar::i32, 4, 4, true, "", false, 255};
  m.rows.push_back({d.row, dot_meaning(d.row, d), "llvm.aarch64.neon.usdot.v4i32.v16i8", "i8mm", 0.5});
  m.dots.insert(m.dots.begin(), d);
  return m;
}

// SVE2 with i8mm at one vector length. The code is for that length alone: kernels are compiled on the machine they run
// on, or for a target named by its length.
Machine sve2(int bits) {
  Machine m = neon_i8mm();
  m.name = fmt::format("sve2-{}", bits);
  m.features += ",+sve,+sve2";
  m.scalable = true;
  m.vector_bits = bits;
  const int lanes = bits / 32;
  const std::string lookup = fmt::format("lookup16.u8x{}", bits / 8);
  if (bits > 128)
    m.rows.push_back({lookup, whole_lookup_meaning(lookup, bits / 8), "llvm.aarch64.sve.tbl", "sve", 0.5});
  for (const bool unsigned_codes : {false, true}) {
    const Scalar a = unsigned_codes ? Scalar::u8 : Scalar::i8;
    const DotRow d{fmt::format("dot4.{}i8.i32x{}", scalar_name(a), lanes),
                   a,
                   Scalar::i8,
                   Scalar::i32,
                   4,
                   lanes,
                   true,
                   "",
                   false,
                   unsigned_codes ? 255 : 128};
    const Row row{d.row, dot_meaning(d.row, d), unsigned_codes ? "llvm.aarch64.sve.usdot" : "llvm.aarch64.sve.sdot",
                  unsigned_codes ? "i8mm" : "sve", 0.5};
    if (bits > 128) m.rows.push_back(row);
    if (bits > 128) m.dots.insert(m.dots.begin(), d);
  }
  return m;
}

}  // namespace

std::vector<Machine> arm_machines() {
  return {neon(), neon_dotprod(), neon_i8mm(), sve2(128), sve2(256), sve2(512)};
}

}  // namespace lumen::machine
