// The NVIDIA machines. Facts and rows only; LLVM generates PTX for them, the driver compiles it to machine code.
// Proved by tests/emit/gpu_test.cpp and tests/kernel/machine/machine_matrix_test.cpp.
#include <fmt/format.h>

#include "kernel/machine/machine.h"

namespace lumen::machine {
namespace {

using loop::Fragment;
using loop::fragment;

constexpr int kWarp = 32, kWarpGroup = 128;

Machine generation(const std::string& name, const std::string& ptx, int64_t shared_bytes, int units) {
  Machine m = threads(name, "nvptx64-nvidia-cuda", kWarp, shared_bytes, units);
  m.features = "+" + ptx;
  m.static_shared_bytes = 48 << 10;
  m.registers = 255;
  m.async_copies = true;
  // PTX ISA, ex2.approx: 2 ulp; rcp.approx: 1 ulp.
  add_shortcuts(m, "llvm.nvvm.ex2.approx.ftz", "llvm.nvvm.rcp.approx.ftz.f");
  // PTX ISA, dp4a: four products of bytes and a 32 bit sum, wrapping.
  add_dot4(m, Scalar::i8, "llvm.nvvm.idp4a.s.s", "1 2 0");
  add_dot4(m, Scalar::u8, "llvm.nvvm.idp4a.u.s", "1 2 0");
  m.rows.push_back({"permute.u32", permute_meaning("permute.u32"), "llvm.nvvm.prmt", "", 1});  // PTX ISA, prmt
  return m;
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and "... for mma.m16n8k32": groupID = lane / 4
// is the row (the column of B); threadID = lane % 4 times the elements of a register is the other index; further
// registers hold first the rows' second half (A, C), then K's second half.
Fragment sums() {
  return fragment(32, 4, {{2, 0, 2}, {8, 4, 0}}, {{4, 1, 0}, {2, 0, 1}});
}
Fragment left(int bits) {  // 16 x 16 of 16 bits, or 16 x 32 of 8
  const int near = 32 / bits;
  return fragment(bits, 4 * near, {{2, 0, near}, {8, 4, 0}}, {{2, 0, 2 * near}, {4, 1, 0}, {near, 0, 1}});
}
Fragment right(int bits) {  // rows are columns of B
  const int near = 32 / bits;
  return fragment(bits, 2 * near, {{8, 4, 0}}, {{2, 0, near}, {4, 1, 0}, {near, 0, 1}});
}

// PTX ISA, ldmatrix.m8n8.x4: lane 8 i + r gives the address of row r of matrix i, sixteen bytes; register i of a lane
// gets the pair of matrix i that `right` assigns to it: of row lane / 4, or, transposed, of column lane / 4.
void add_loads(Machine& m) {
  add_matrix_load(m, "load_matrix.x4", false, fragment(16, 8, {{4, 0, 2}, {8, 4, 0}}, {{4, 1, 0}, {2, 0, 1}}),
                  "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16");
  add_matrix_load(m, "load_matrix.x4.transposed", true, fragment(16, 8, {{4, 0, 2}, {4, 1, 0}, {2, 0, 1}}, {{8, 4, 0}}),
                  "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16");
}

void add_mma(Machine& m, const Factor& a, const Factor& b, Scalar acc, double cycles, const std::string& llvm) {
  MatrixRow r{.n = 8, .k = 256 / a.bits(), .a = a, .b = b, .acc = acc, .short_sums = a.code.has_value()};
  r.collective = collective(kWarp, sums(), left(a.bits()), right(b.bits()));
  add_matrix(m, r, "llvm.nvvm.mma." + llvm, cycles, "1 2 0");
}
void add_mma(Machine& m, const Factor& f, Scalar acc, double cycles, const std::string& llvm) {
  add_mma(m, f, f, acc, cycles, llvm);
}

// `cycles`: of an instruction; each of a multiprocessor's four schedulers has one in flight.
void add_mma(Machine& m, bool short_codes, double cycles) {
  add_mma(m, {Scalar::f16, {}}, Scalar::f32, cycles, "m16n8k16.row.col.f32.f32");
  add_mma(m, {Scalar::bf16, {}}, Scalar::f32, cycles, "m16n8k16.row.col.bf16");
  add_mma(m, {Scalar::i8, {}}, Scalar::i32, cycles, "m16n8k32.row.col.s8");
  if (!short_codes) return;
  m.codes = {kOcp4, kOcp5};
  // PTX ISA, cvt: two codes to two f16.
  add_conversion(m, kOcp4, Scalar::f16, "llvm.nvvm.e4m3x2.to.f16x2.rn", "0");
  add_conversion(m, kOcp5, Scalar::f16, "llvm.nvvm.e5m2x2.to.f16x2.rn", "0");
  // The same, cvt.rn.satfinite: the first number becomes the upper code.
  add_rounding(m, kOcp4, "llvm.nvvm.ff.to.e4m3x2.rn", "0.1 0.0");
  add_rounding(m, kOcp5, "llvm.nvvm.ff.to.e5m2x2.rn", "0.1 0.0");
  for (const FloatCode& a : {kOcp4, kOcp5})
    for (const FloatCode& b : {kOcp4, kOcp5})
      add_mma(m, {Scalar::u8, a}, {Scalar::u8, b}, Scalar::f32, cycles,
              fmt::format("m16n8k32.row.col.f32.{}.{}.f32", code_name(a), code_name(b)));
}

// PTX ISA, "Asynchronous warpgroup level matrix instructions": D's fragment for m64nNk16; A and B in shared memory, 128
// byte rows, 128 byte swizzle: K-major, or (transposed; 16 bits only) MN-major, "Strides" and "Canonical layouts". Four
// warps execute one; src/emit/lower/wgmma.cpp reads the shape from its row name.
// A of 16 bits may be in registers instead: each warp holds its 16 rows in the fragment of mma.m16n8k16.
void add_wgmma(Machine& m, const Factor& a, const Factor& b, Scalar acc, bool a_transposed = false,
               bool b_transposed = false, bool a_in_registers = false) {
  constexpr int kRowBytes = 128, kSwizzle = 8;
  const int bits = a.bits();
  const auto factor = [&](int rows, int columns, bool transposed) {
    return transposed
               ? loop::transposed_fragment(bits, rows, columns, kRowBytes, kTransposedColumns * kRowBytes, kSwizzle)
               : loop::shared_fragment(bits, rows, columns, kRowBytes, kSwizzle);
  };
  const Fragment held = fragment(16, 8, {{4, 32, 0}, {2, 0, 2}, {8, 4, 0}}, {{2, 0, 4}, {4, 1, 0}, {2, 0, 1}});
  for (const int n : {64, 128, 192, 256}) {
    if (n == 192 && !a.code && bits != 16) continue;  // for sums that take twice the registers, and odd widths
    MatrixRow r{.m = 64,
                .n = n,
                .k = 256 / bits,
                .a = a,
                .b = b,
                .acc = acc,
                .short_sums = a.code.has_value(),
                .in_shared = true,
                .a_in_registers = a_in_registers,
                .a_transposed = a_transposed,
                .b_transposed = b_transposed};
    loop::Collective c = *collective(
        kWarpGroup, fragment(32, n / 2, {{4, 32, 0}, {2, 0, 2}, {8, 4, 0}}, {{n / 8, 0, 4}, {4, 1, 0}, {2, 0, 1}}),
        a_in_registers ? held : factor(r.m, r.k, a_transposed), factor(n, r.k, b_transposed));
    c.operands[1].in_memory = !a_in_registers;
    c.operands[2].in_memory = true;
    r.collective = std::make_shared<const loop::Collective>(std::move(c));
    const auto type = [](const Factor& f) { return f.scalar == Scalar::i8 ? "s8" : factor_name(f); };
    add_matrix(m, r,
               fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", n, r.k,
                           acc == Scalar::i32 ? "s32" : scalar_name(acc), type(a), type(b)),
               n / 2.0);
  }
}

}  // namespace

// Shared memory: CUDA programming guide, technical specifications per compute capability, maximum of one block. PTX
// versions: the lowest that supports the target and its instructions (PTX ISA, release notes).
std::vector<Machine> nvidia_machines() {
  std::vector<Machine> all = {generation("sm_80", "ptx71", 163 << 10, 108), generation("sm_89", "ptx84", 99 << 10, 128),
                              generation("sm_90a", "ptx84", 227 << 10, 132),
                              generation("sm_100a", "ptx86", 227 << 10, 148),
                              generation("sm_120", "ptx87", 99 << 10, 170)};
  for (size_t i = 0; i < all.size(); ++i) {
    // Data center cards multiply twice as much per cycle as desktop cards.
    add_mma(all[i], i > 0, i == 0 || i == 3 ? 8 : 16);
    add_loads(all[i]);
  }
  for (size_t i = 2; i < all.size(); ++i) all[i].follows = true;  // PTX ISA, griddepcontrol: sm_90
  for (size_t i = 0; i < 3; ++i) all[i].has_integer_blocks = true;
  Machine& hopper = all[2];
  hopper.tier = Tier::measured;  // the ladder, on an H100
  for (const Scalar s : {Scalar::f16, Scalar::bf16})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        add_wgmma(hopper, {s, {}}, {s, {}}, Scalar::f32, a_transposed, b_transposed);
  for (const Scalar s : {Scalar::f16, Scalar::bf16})
    for (const bool b_transposed : {false, true})
      add_wgmma(hopper, {s, {}}, {s, {}}, Scalar::f32, false, b_transposed, true);
  for (const FloatCode& a : {kOcp4, kOcp5})
    for (const FloatCode& b : {kOcp4, kOcp5}) add_wgmma(hopper, {Scalar::u8, a}, {Scalar::u8, b}, Scalar::f32);
  add_wgmma(hopper, {Scalar::i8, {}}, {Scalar::i8, {}}, Scalar::i32);
  return all;
}

}  // namespace lumen::machine
