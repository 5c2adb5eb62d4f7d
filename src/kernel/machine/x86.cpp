// The x86-64 machines: 256 and 512 bit vectors, integer dots by pairs or by VNNI. Facts and rows only.
// Proved by tests/kernel/machine/machine_rows_test.cpp, and by tests/ladder/machine_code_test.cpp on the processor they
// run on; tiles by tests/ladder/dot_native_test.cpp.
#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

constexpr const char* kTriple = "x86_64-pc-linux-gnu";
constexpr const char* kV3 =
    "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+sahf,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave";

// u8 x i8 and i16 x i16 by pairs. The first saturates at 16 bits, so its weights stay within 0..127: two products of at
// most 127 * 127 fit. Wider weights take the second after widening.
void add_pairs(Machine& m, int bits, const std::string& bytes, const std::string& words, const std::string& needs) {
  const int lanes = bits / 32;
  const std::string mulpairs = "mulpairs.u8i8.i16x" + std::to_string(2 * lanes);
  const std::string addpairs = "mulpairs.i16i16.i32x" + std::to_string(lanes);
  m.rows.push_back({mulpairs, saturating_pairs_meaning(mulpairs, 2 * lanes), bytes, needs, 0.5});
  m.rows.push_back({addpairs, product_pairs_meaning(addpairs, lanes), words, needs, 0.5});
  m.dots.push_back({mulpairs, Scalar::u8, Scalar::i8, Scalar::i32, 4, lanes, false, addpairs, true, 127});
  m.dots.push_back({addpairs, Scalar::i16, Scalar::i16, Scalar::i32, 2, lanes, false, "", false, 32767});
}

void add_lookup(Machine& m, int bits, const std::string& llvm, const std::string& needs) {
  const std::string name = "lookup16.u8x" + std::to_string(bits / 8);
  m.rows.push_back({name, lookup_meaning(name, bits / 8, true), llvm, needs, 0.5});
}

Machine v3() {
  Machine m;
  m.name = "x86-64-v3";
  m.triple = kTriple;
  m.cpu = "x86-64-v3";
  m.features = kV3;
  m.tier = Tier::measured;
  add_lookup(m, 128, "llvm.x86.ssse3.pshuf.b.128", "ssse3");
  add_lookup(m, 256, "llvm.x86.avx2.pshuf.b", "avx2");
  m.rows.push_back({"lookup8.u32x8", word_lookup_meaning("lookup8.u32x8", 8), "llvm.x86.avx2.permd", "avx2", 1});
  add_pairs(m, 256, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", "avx2");
  return m;
}

// Alder Lake and later without 512 bit vectors.
Machine avx_vnni() {
  Machine m = v3();
  m.name = "avx-vnni";
  m.features += ",+avxvnni";
  m.tier = Tier::compiled;
  add_dot(m, dot4(Scalar::u8, 8), "llvm.x86.avx512.vpdpbusd.256", "avxvnni", 1);
  return m;
}

Machine avx512() {
  Machine m = v3();
  m.name = "avx512";
  m.cpu = "x86-64-v4";
  m.features = std::string(kV3) + ",+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl,-prefer-256-bit";
  m.vector_bits = 512;
  m.vector_registers = 32;
  m.fma_cycles = 1;
  m.load_cycles = 1;
  m.dots.clear();
  add_lookup(m, 512, "llvm.x86.avx512.pshuf.b.512", "avx512bw");
  m.rows.push_back(
      {"lookup16.u32x16", word_lookup_meaning("lookup16.u32x16", 16), "llvm.x86.avx512.permvar.si.512", "avx512f", 1});
  m.rows.push_back({"lookup32.u16x32", word_lookup_meaning("lookup32.u16x32", 32, Scalar::u16),
                    "llvm.x86.avx512.permvar.hi.512", "avx512bw", 1});
  add_pairs(m, 512, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512", "avx512bw");
  return m;
}

Machine avx512_vnni() {
  Machine m = avx512();
  m.name = "avx512-vnni";
  m.features += ",+avx512vnni";
  add_dot(m, dot4(Scalar::u8, 8), "llvm.x86.avx512.vpdpbusd.256", "avx512vnni", 1);
  add_dot(m, dot4(Scalar::u8, 16), "llvm.x86.avx512.vpdpbusd.512", "avx512vnni", 1);
  return m;
}

// Byte permutations of a whole register, and any eight bits of eight bytes (Ice Lake, Zen 4 and later).
Machine avx512_vbmi() {
  Machine m = avx512_vnni();
  m.name = "avx512-vbmi";
  m.features += ",+avx512vbmi";
  m.rows.push_back({"lookup64.u8x64", word_lookup_meaning("lookup64.u8x64", 64, Scalar::u8),
                    "llvm.x86.avx512.permvar.qi.512", "avx512vbmi", 1});
  m.rows.push_back({"lookup128.u8x64", word_lookup_meaning("lookup128.u8x64", 64, Scalar::u8, true),
                    "llvm.x86.avx512.vpermi2var.qi.512", "avx512vbmi", 1});
  m.rows.push_back(
      {"bits8.u8x64", bits8_meaning("bits8.u8x64", 64), "llvm.x86.avx512.pmultishift.qb.512", "avx512vbmi", 1});
  return m;
}

// Zen 4, Sapphire Rapids and later.
Machine avx512_bf16() {
  Machine m = avx512_vbmi();
  m.name = "avx512-bf16";
  m.features += ",+avx512bf16";
  m.ahead_bytes = 6144;  // measured on Zen 4 (docs/reference/performance.md)
  m.ahead_into = loop::Cache::second;
  const DotRow d{"dot2.bf16bf16.f32x16", Scalar::bf16, Scalar::bf16, Scalar::f32, 2, 16, true, "", false, 0};
  m.rows.push_back({d.row, float_dot_meaning(d.row, d.lanes), "llvm.x86.avx512bf16.dpbf16ps.512", "avx512bf16", 1});
  m.dots.push_back(d);
  const std::string round = "roundpair.f32f32.bf16x32";
  m.rows.push_back({round, round_pair_meaning(round, 16), "llvm.x86.avx512bf16.cvtne2ps2bf16.512", "avx512bf16", 1});
  return m;
}

// Sapphire Rapids and later: eight tiles of 16 rows of 64 bytes. Emit assigns the tile registers.
Machine amx() {
  Machine m = avx512_bf16();
  m.name = "amx";
  m.features += ",+amx-tile,+amx-int8,+amx-bf16";
  m.fma_cycles = 0.5;
  m.load_cycles = 0.5;
  m.l1_bytes = 48 << 10;
  m.l2_bytes = 2 << 20;
  const TileRow bytes{"tile.i8i8.i32", Scalar::i8, Scalar::i8, Scalar::i32, 16, 16, 64};
  const TileRow halves{"tile.bf16bf16.f32", Scalar::bf16, Scalar::bf16, Scalar::f32, 16, 16, 32};
  m.rows.push_back({bytes.row, tile_meaning(bytes), "llvm.x86.tdpbssd.internal", "amx-int8", 16});
  m.rows.push_back({halves.row, tile_meaning(halves), "llvm.x86.tdpbf16ps.internal", "amx-bf16", 16});
  m.tiles = {bytes, halves};
  return m;
}

}  // namespace

std::vector<Machine> x86_machines() {
  return {v3(), avx_vnni(), avx512(), avx512_vnni(), avx512_vbmi(), avx512_bf16(), amx()};
}

}  // namespace lumen::machine
