// The AArch64 machines: 128 bit vectors without and with the four-way integer dots, and scalable vectors at the lengths
// that processors have. Facts and rows only.
// Proved by tests/ladder/dot_arm_test.cpp under an emulator.
#include <fmt/format.h>

#include "kernel/machine/meaning.h"
#include "kernel/machine/relatives.h"

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
  m.costs.codes.product = 0.65;  // byte products widen in one instruction; pair additions issue in parallel
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
  add_dot(m, dot4(Scalar::i8, 4), "llvm.aarch64.neon.sdot.v4i32.v16i8", "dotprod", 0.5);
  return m;
}

// A 2x2 matrix product in every 128 bits, into 32-bit sums of `k` products each.
void add_square(Machine& m, Scalar a, Scalar b, Scalar sum, int k, int lanes, const std::string& llvm,
                const std::string& needs) {
  DotRow d{.a = a,
           .b = b,
           .acc = sum,
           .k = k,
           .lanes = lanes,
           .a_max = is_float(sum)     ? 0
                    : a == Scalar::u8 ? 255
                                      : 128};
  d.row = fmt::format("square{}.{}{}.{}", k, scalar_name(a), scalar_name(b), lanes_of(sum, lanes));
  m.rows.push_back({d.row, square_meaning(d), llvm, needs, 0.5});
  m.squares.push_back(d);
}
void add_byte_squares(Machine& m, int lanes, const std::string& mixed, const std::string& same) {
  add_square(m, Scalar::u8, Scalar::i8, Scalar::i32, 8, lanes, mixed, "i8mm");
  add_square(m, Scalar::i8, Scalar::i8, Scalar::i32, 8, lanes, same, "i8mm");
}

// Dots of unsigned by signed bytes: codes 0..255 need no bias.
Machine neon_i8mm() {
  Machine m = neon_dotprod();
  m.name = "neon-i8mm";
  m.features += ",+i8mm";
  add_dot(m, dot4(Scalar::u8, 4), "llvm.aarch64.neon.usdot.v4i32.v16i8", "i8mm", 0.5);
  add_byte_squares(m, 4, "llvm.aarch64.neon.usmmla.v4i32.v16i8", "llvm.aarch64.neon.smmla.v4i32.v16i8");
  return m;
}

// Dots of bf16 pairs, summed in f32 (FEAT_BF16, which accompanies FEAT_I8MM).
void add_bf16_dot(Machine& m, int lanes, const std::string& llvm, const std::string& arguments = {}) {
  const DotRow d{fmt::format("dot2.bf16bf16.f32x{}", lanes),
                 Scalar::bf16,
                 Scalar::bf16,
                 Scalar::f32,
                 2,
                 lanes,
                 true,
                 "",
                 false,
                 0};
  m.rows.push_back({d.row, odd_dot_meaning(d.row, lanes), llvm, "bf16", 0.5, arguments});
  m.dots.insert(std::ranges::find(m.dots, Scalar::bf16, &DotRow::a), d);  // before those of fewer lanes
}
Machine neon_bf16() {
  Machine m = neon_i8mm();
  m.name = "neon-bf16";
  m.features += ",+bf16";
  add_bf16_dot(m, 4, "llvm.aarch64.neon.bfdot.v4f32.v8bf16", "0 1:v8bf16 2:v8bf16");
  add_square(m, Scalar::bf16, Scalar::bf16, Scalar::f32, 4, 4, "llvm.aarch64.neon.bfmmla", "bf16");
  return m;
}

// Adds scalable vectors of one length to a machine with fixed ones. Code is for that length alone: kernels are compiled
// on the machine that runs them, or for a target whose name includes the length.
Machine scalable(Machine m, const std::string& name, const std::string& features, int bits) {
  m.name = fmt::format("{}-{}", name, bits);
  const bool mixed = m.features.find("+i8mm") != std::string::npos;
  const bool halves = m.features.find("+bf16") != std::string::npos;
  m.features += features;
  m.scalable = true;
  m.vector_bits = bits;
  if (bits == 128) return m;
  const std::string lookup = fmt::format("lookup16.u8x{}", bits / 8);
  m.rows.push_back({lookup, whole_lookup_meaning(lookup, bits / 8), "llvm.aarch64.sve.tbl", "sve", 0.5});
  add_dot(m, dot4(Scalar::i8, bits / 32), "llvm.aarch64.sve.sdot", "sve", 0.5);
  if (mixed) add_dot(m, dot4(Scalar::u8, bits / 32), "llvm.aarch64.sve.usdot", "i8mm", 0.5);
  if (halves) add_bf16_dot(m, bits / 32, "llvm.aarch64.sve.bfdot");
  m.squares.clear();
  if (mixed) add_byte_squares(m, bits / 32, "llvm.aarch64.sve.usmmla", "llvm.aarch64.sve.smmla");
  if (halves) add_square(m, Scalar::bf16, Scalar::bf16, Scalar::f32, 4, bits / 32, "llvm.aarch64.sve.bfmmla", "bf16");
  return m;
}
// Every processor with SVE2 has the dots of bytes and of bf16.
Machine sve2(int bits) {
  return scalable(neon_bf16(), "sve2", ",+sve,+sve2", bits);
}

// The matrix unit (SME): four tiles of 32-bit sums, with as many rows and columns as a streaming vector has 32-bit
// lanes; each factor is one vector. Only products run in streaming mode (emit/streaming), at the machine's vector
// length; other kernels use the 128 bits that every processor has. Code is for one streaming length, as with scalable
// vectors.
Machine sme(int bits) {
  Machine m = neon_bf16();
  m.name = fmt::format("sme-{}", bits);
  m.features += ",+sme";
  m.tile_registers = 4;
  m.tile_cycles = 1;
  m.l1_bytes = 64 << 10;
  m.l2_bytes = 2 << 20;
  const int side = bits / 32;
  const auto add = [&](Scalar a, Scalar b, Scalar sum, const char* llvm) {
    const int k = 4 / scalar_bytes(a);
    const TileRow t{
        fmt::format("outer{}.{}{}.{}x{}x{}", k, scalar_name(a), scalar_name(b), scalar_name(sum), side, side),
        a,
        b,
        sum,
        side,
        side,
        k};
    m.rows.push_back({t.row, outer_meaning(t), llvm, "sme", 1});
    m.tiles.push_back(t);
  };
  add(Scalar::i8, Scalar::i8, Scalar::i32, "llvm.aarch64.sme.smopa.wide");
  add(Scalar::i8, Scalar::u8, Scalar::i32, "llvm.aarch64.sme.sumopa.wide");
  add(Scalar::u8, Scalar::i8, Scalar::i32, "llvm.aarch64.sme.usmopa.wide");
  add(Scalar::u8, Scalar::u8, Scalar::i32, "llvm.aarch64.sme.umopa.wide");
  add(Scalar::bf16, Scalar::bf16, Scalar::f32, "llvm.aarch64.sme.mopa.wide");
  add(Scalar::f16, Scalar::f16, Scalar::f32, "llvm.aarch64.sme.mopa.wide");
  add(Scalar::f32, Scalar::f32, Scalar::f32, "llvm.aarch64.sme.mopa");
  return m;
}

}  // namespace

// The first generation of scalable vectors, without (A64FX) and with the mixed-sign byte dots and bf16 dots (Neoverse
// V1), and lengths that no processor has yet.
std::vector<Machine> arm_relatives() {
  std::vector<Machine> out;
  for (const int bits : {128, 256, 512, 1024, 2048}) out.push_back(scalable(neon(), "sve", ",+sve", bits));
  out.push_back(scalable(neon_i8mm(), "sve-i8mm", ",+sve", 256));
  out.push_back(scalable(neon_bf16(), "sve-bf16", ",+sve", 256));
  for (const int bits : {1024, 2048}) out.push_back(sve2(bits));
  for (const int bits : {128, 256, 512, 1024, 2048}) out.push_back(sme(bits));
  return out;
}

std::vector<Machine> arm_machines() {
  return {neon(), neon_dotprod(), neon_i8mm(), neon_bf16(), sve2(128), sve2(256), sve2(512)};
}

}  // namespace lumen::machine
