// The AMD machines: GCN and CDNA with waves of 64 lanes and MFMA, RDNA with waves of 32 and WMMA. Facts and rows only.
// Proved by tests/emit/gpu_test.cpp and tests/kernel/machine/machine_matrix_test.cpp.
#include <fmt/format.h>

#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

using loop::Fragment;
using loop::fragment;

constexpr Factor kF32{Scalar::f32, {}}, kF16{Scalar::f16, {}}, kBf16{Scalar::bf16, {}}, kI8{Scalar::i8, {}};

Machine generation(const std::string& name, int wave, int64_t shared_bytes, int units) {
  Machine m = threads(name, "amdgcn-amd-amdhsa", wave, shared_bytes, units);
  m.features = fmt::format("+wavefrontsize{}", wave);
  m.registers = 256;
  add_shortcuts(m, "llvm.amdgcn.exp2", "llvm.amdgcn.rcp");  // V_EXP_F32, V_RCP_F32: 1 ulp
  constexpr const char* kBytes = "bytepermute.u32";         // V_PERM_B32
  m.rows.push_back({kBytes, byte_permute_meaning(kBytes), "llvm.amdgcn.perm", "", 1, "1 0 2"});
  return m;
}

// ---- MFMA, one block. "AMD Instinct MI100/MI200/MI300/CDNA4 Instruction Set Architecture", chapter on matrix
// arithmetic instructions, and AMD's matrix instruction calculator: lane = row + rows * (k / share), and a lane holds
// `share` adjacent elements along k. In the sums, lane % columns is the column; a group of four rows is in four
// registers; the group varies with lane / columns first, then with the registers.
Fragment mfma_factor(int rows, int k, int bits) {
  const int groups = 64 / rows, share = k / groups;
  return fragment(bits, share, {{rows, 1, 0}}, {{groups, rows, 0}, {share, 0, 1}});
}
Fragment mfma_sums(int size) {
  if (size == 16) return fragment(32, 4, {{4, 16, 0}, {4, 0, 1}}, {{16, 1, 0}});
  return fragment(32, 16, {{4, 0, 4}, {2, 32, 0}, {4, 0, 1}}, {{32, 1, 0}});
}

// Cycles of a SIMD, from the peak rates of AMD's data sheets (MI100, MI250X, MI300X, MI355X) in floating point
// operations per cycle. Where a machine has wider shapes (gfx950), shorter ones run at half the rate.
double mfma_cycles(const Machine& m, int size, int k, const Factor& f) {
  const double products = double{1} * size * size * k;
  double pace = f.bits() == 32 ? 64 : 256;
  if (m.name == "gfx908" && f.scalar == Scalar::bf16) pace = 128;
  if (m.name == "gfx942" && f.bits() < 32) pace = f.bits() == 16 ? 512 : 1024;
  if (m.name == "gfx950" && f.bits() < 32) {
    const double bytes = products * f.bits() / 8;  // half as many for shapes of 16 x 16
    pace = (f.bits() == 16 ? 1024 : 2048) * (bytes < (size == 16 ? 1 << 14 : 1 << 15) ? 0.5 : 1);
  }
  return 2 * products / pace;
}

// `as`: operand type of the intrinsic, if it is not the fragment's.
void add_mfma(Machine& m, int size, int k, const Factor& a, const Factor& b, Scalar acc, const std::string& llvm,
              const std::string& as = {}) {
  MatrixRow r{.m = size, .n = size, .k = k, .a = a, .b = b, .acc = acc};
  r.collective = collective(64, mfma_sums(size), mfma_factor(size, k, a.bits()), mfma_factor(size, k, b.bits()));
  const std::string type = as.empty() ? "" : ":" + as;
  add_matrix(m, r, "llvm.amdgcn.mfma." + llvm, mfma_cycles(m, size, k, a),
             fmt::format("1{} 2{} 0 =0 =0 =0", type, type));
}

void add_mfma(Machine& m, int size, int k, const Factor& f, Scalar acc, const std::string& llvm,
              const std::string& as = {}) {
  add_mfma(m, size, k, f, f, acc, llvm, as);
}

void add_mfma_of_mi100(Machine& m) {
  add_mfma(m, 32, 2, kF32, Scalar::f32, "f32.32x32x2f32");
  add_mfma(m, 16, 4, kF32, Scalar::f32, "f32.16x16x4f32");
  add_mfma(m, 32, 8, kF16, Scalar::f32, "f32.32x32x8f16");
  add_mfma(m, 16, 16, kF16, Scalar::f32, "f32.16x16x16f16");
}
void add_bytes_of_mi100(Machine& m) {
  add_mfma(m, 32, 8, kI8, Scalar::i32, "i32.32x32x8i8");
  add_mfma(m, 16, 16, kI8, Scalar::i32, "i32.16x16x16i8");
}
void add_bf16_of_mi200(Machine& m) {
  add_mfma(m, 32, 8, kBf16, Scalar::f32, "f32.32x32x8bf16.1k");
  add_mfma(m, 16, 16, kBf16, Scalar::f32, "f32.16x16x16bf16.1k");
}

// V_CVT_PK_F32_FP8 and V_CVT_PK_F32_BF8: the two codes in either half of a register.
void add_conversions(Machine& m, const FloatCode& four, const FloatCode& five) {
  add_conversion(m, four, Scalar::f32, "llvm.amdgcn.cvt.pk.f32.fp8", "0:word =half");
  add_conversion(m, five, Scalar::f32, "llvm.amdgcn.cvt.pk.f32.bf8", "0:word =half");
}

void add_mfma_of_mi300(Machine& m, const FloatCode& four, const FloatCode& five) {
  m.codes = {four, five};
  add_conversions(m, four, five);
  add_mfma(m, 32, 16, kI8, Scalar::i32, "i32.32x32x16.i8");
  add_mfma(m, 16, 32, kI8, Scalar::i32, "i32.16x16x32.i8");
  // The hardware calls the code of more precision fp8, the other bf8.
  const std::pair<FloatCode, const char*> codes[] = {{four, "fp8"}, {five, "bf8"}};
  for (const auto& [a, left] : codes)
    for (const auto& [b, right] : codes)
      for (const int size : {32, 16}) {
        const int k = 512 / size;
        add_mfma(m, size, k, {Scalar::u8, a}, {Scalar::u8, b}, Scalar::f32,
                 fmt::format("f32.{}x{}x{}.{}.{}", size, size, k, left, right));
      }
}

// CDNA4, V_MFMA_SCALE_F32_*_F8F6F4: a lane gives 32 elements of its row and the scale of one group of 32. Codes of 4
// bits are laid out as above; codes of 8 bits are two runs of 16, the second half of k after the first. Scales: lane =
// row + rows * group, the low byte.
void add_scaled(Machine& m, int size, const FloatCode& code) {
  constexpr int kGroup = 32;
  const Factor codes{Scalar::u8, code};
  MatrixRow r{.m = size, .n = size, .k = size == 16 ? 128 : 64, .a = codes, .b = codes, .scale_group = kGroup};
  const int groups = 64 / size, bits = r.a.bits();
  const Fragment factor = bits == 4 ? mfma_factor(size, r.k, 4)
                                    : fragment(8, kGroup, {{size, 1, 0}}, {{2, 0, 16}, {groups, size, 0}, {16, 0, 1}});
  const Fragment scale = fragment(8, 4, {{size, 1, 0}}, {{groups, size, 0}});
  loop::Collective c = *collective(64, mfma_sums(size), factor, factor);
  c.operands.push_back({loop::Collective::Side::a, scale});
  c.operands.push_back({loop::Collective::Side::b, scale});
  r.collective = std::make_shared<const loop::Collective>(std::move(c));
  const int format = bits == 4 ? 4 : code.mantissa == 3 ? 0 : 1;
  const char* type = bits == 4 ? "v4i32" : "v8i32";
  const double cycles = mfma_cycles(m, size, r.k, {Scalar::u8, code}) / (bits == 4 ? 2 : 1);
  add_matrix(m, r, fmt::format("llvm.amdgcn.mfma.scale.f32.{}x{}x{}.f8f6f4", size, size, r.k), cycles,
             fmt::format("1:{} 2:{} 0 ={} ={} =0 3:i32 =0 4:i32", type, type, format, format));
}

// The same without scales, at twice the rate of the shorter ones: if both scales are 0, LLVM selects an instruction
// without them. The order of k in a lane is arbitrary as long as both factors agree: one run of 32.
void add_unscaled(Machine& m, int size, const FloatCode& a, const FloatCode& b) {
  const int k = size == 16 ? 128 : 64;
  MatrixRow r{.m = size, .n = size, .k = k, .a = {Scalar::u8, a}, .b = {Scalar::u8, b}};
  r.collective = collective(64, mfma_sums(size), mfma_factor(size, k, 8), mfma_factor(size, k, 8));
  const auto format = [](const FloatCode& c) { return c.mantissa == 3 ? 0 : 1; };
  add_matrix(m, r, fmt::format("llvm.amdgcn.mfma.scale.f32.{}x{}x{}.f8f6f4", size, size, k),
             mfma_cycles(m, size, k, r.a), fmt::format("1:v8i32 2:v8i32 0 ={} ={} =0 =0 =0 =0", format(a), format(b)));
}

void add_mfma_of_mi350(Machine& m) {
  add_mfma(m, 32, 16, kF16, Scalar::f32, "f32.32x32x16.f16");
  add_mfma(m, 16, 32, kF16, Scalar::f32, "f32.16x16x32.f16");
  add_mfma(m, 32, 16, kBf16, Scalar::f32, "f32.32x32x16.bf16", "v8bf16");
  add_mfma(m, 16, 32, kBf16, Scalar::f32, "f32.16x16x32.bf16", "v8bf16");
  add_mfma(m, 32, 32, kI8, Scalar::i32, "i32.32x32x32.i8");
  add_mfma(m, 16, 64, kI8, Scalar::i32, "i32.16x16x64.i8");
  for (const FloatCode& code : {kOcp4, kOcp5, kTwoBits})
    for (const int size : {32, 16}) add_scaled(m, size, code);
  for (const FloatCode& a : {kOcp4, kOcp5})
    for (const FloatCode& b : {kOcp4, kOcp5})
      for (const int size : {32, 16}) add_unscaled(m, size, a, b);
}

// ---- WMMA, 16 x 16 x 16, waves of 32. "RDNA3 Instruction Set Architecture", chapter on WMMA: lanes 0..15 hold a row
// (column) of a factor, lanes 16..31 a copy; in the sums lane % 16 is the column, lane / 16 the low bit of the row.
// "RDNA4 ...": each half of the lanes holds half of k, and eight adjacent rows of the sums.
Fragment wmma_factor(int bits, bool twice) {
  if (!twice) return fragment(bits, 8, {{16, 1, 0}}, {{2, 16, 0}, {8, 0, 1}});
  Fragment f = fragment(bits, 16, {{16, 1, 0}}, {{16, 0, 1}});
  f.copies = 2;
  f.copy_bits = int64_t{16} * f.lane_bits;
  return f;
}
Fragment wmma_sums(bool twice) {
  return twice ? fragment(32, 8, {{8, 0, 1}, {2, 16, 0}}, {{16, 1, 0}})
               : fragment(32, 8, {{2, 16, 0}, {8, 0, 1}}, {{16, 1, 0}});
}

void add_wmma(Machine& m, bool twice, const Factor& a, const Factor& b, Scalar acc, const std::string& llvm,
              const std::string& arguments) {
  MatrixRow r{.a = a, .b = b, .acc = acc};
  r.collective = collective(32, wmma_sums(twice), wmma_factor(a.bits(), twice), wmma_factor(b.bits(), twice));
  add_matrix(m, r, "llvm.amdgcn.wmma." + llvm, 16, arguments);
}
void add_wmma(Machine& m, bool twice, const Factor& f, Scalar acc, const std::string& llvm,
              const std::string& arguments) {
  add_wmma(m, twice, f, f, acc, llvm, arguments);
}

void add_wmma(Machine& m, bool twice) {
  const int n = twice ? 16 : 8;
  const std::string halves = fmt::format("1:v{}f16 2:v{}f16 0", n, n), words = fmt::format("1:v{}i16 2:v{}i16 0", n, n);
  const std::string bytes = fmt::format("=1:i1 1:v{}i32 =1:i1 2:v{}i32 0:v8i32 =0:i1", n / 4, n / 4);
  add_wmma(m, twice, kF16, Scalar::f32, "f32.16x16x16.f16", halves);
  add_wmma(m, twice, kBf16, Scalar::f32, "f32.16x16x16.bf16", words);
  add_wmma(m, twice, kI8, Scalar::i32, "i32.16x16x16.iu8", bytes);
  if (twice) return;
  m.codes = {kOcp4, kOcp5};
  add_conversions(m, kOcp4, kOcp5);
  const std::pair<FloatCode, const char*> codes[] = {{kOcp4, "fp8"}, {kOcp5, "bf8"}};
  for (const auto& [a, left] : codes)
    for (const auto& [b, right] : codes)
      add_wmma(m, twice, {Scalar::u8, a}, {Scalar::u8, b}, Scalar::f32, fmt::format("f32.16x16x16.{}.{}", left, right),
               "1:v2i32 2:v2i32 0");
}

// V_DOT4_I32_I8 and, on RDNA from the third generation on, V_DOT4_I32_IU8, which has a sign flag for each factor.
void add_dots(Machine& m, bool either_sign) {
  if (!either_sign) return add_dot4(m, Scalar::i8, "llvm.amdgcn.sdot4", "1 2 0 =0");
  add_dot4(m, Scalar::i8, "llvm.amdgcn.sudot4", "=1 1 =1 2 0 =0");
  add_dot4(m, Scalar::u8, "llvm.amdgcn.sudot4", "=0 1 =1 2 0 =0");
}

}  // namespace

// Wave sizes, LDS and compute units (of one die of gfx90a, which is a device of its own): LLVM's AMDGPU usage guide
// (processors) and the instruction set documents.
std::vector<Machine> amd_machines() {
  std::vector<Machine> out;
  for (const auto& [name, units] : {std::pair{"gfx906", 60}, {"gfx908", 120}, {"gfx90a", 110}, {"gfx942", 304}}) {
    out.push_back(generation(name, 64, 64 << 10, units));
    add_dots(out.back(), false);
  }
  out.push_back(generation("gfx950", 64, 160 << 10, 256));
  add_dots(out.back(), false);
  Machine &mi100 = out[1], &mi200 = out[2], &mi300 = out[3], &mi350 = out[4];
  // "AMD CDNA 3 (4) white paper": eight accelerator complex dies. Loads of 128 bits straight into LDS: "AMD Instinct
  // CDNA4 Instruction Set Architecture", "Memory buffer load to LDS".
  mi300.chiplets = mi350.chiplets = 8;
  mi350.together_bytes = 16;
  // Memory bandwidth per unit, from the data sheets. Conversion on the way to LDS overlaps products and costs LDS bytes
  // only.
  const std::pair<Machine*, double> bytes[] = {{&mi100, 6.8}, {&mi200, 8.6}, {&mi300, 8.3}, {&mi350, 13}};
  for (const auto& [m, pace] : bytes) {
    m->costs.blocks.bytes = pace;
    m->costs.blocks.along_k = m->costs.blocks.copied;
  }
  for (Machine* m : {&mi100, &mi200, &mi300, &mi350}) add_mfma_of_mi100(*m);
  for (Machine* m : {&mi100, &mi200}) add_bytes_of_mi100(*m);
  add_mfma(mi100, 32, 4, kBf16, Scalar::f32, "f32.32x32x4bf16");
  add_mfma(mi100, 16, 8, kBf16, Scalar::f32, "f32.16x16x8bf16");
  for (Machine* m : {&mi200, &mi300, &mi350}) add_bf16_of_mi200(*m);
  add_mfma_of_mi300(mi300, kNoMinus4, kNoMinus5);
  add_mfma_of_mi300(mi350, kOcp4, kOcp5);
  add_mfma_of_mi350(mi350);
  for (Machine* m : {&mi100, &mi200, &mi300, &mi350}) m->has_integer_blocks = true;
  for (const auto& [name, units] : {std::pair{"gfx1030", 80},
                                    {"gfx1100", 96},
                                    {"gfx1101", 60},
                                    {"gfx1102", 32},
                                    {"gfx1151", 40},
                                    {"gfx1200", 32},
                                    {"gfx1201", 64}}) {
    Machine m = generation(name, 32, 64 << 10, units);
    const bool third = m.name.starts_with("gfx11"), fourth = m.name.starts_with("gfx12");
    add_dots(m, third || fourth);
    if (third || fourth) add_wmma(m, third);
    m.has_integer_blocks = third || fourth;
    out.push_back(std::move(m));
  }
  return out;
}

}  // namespace lumen::machine
