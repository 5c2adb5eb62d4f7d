// needs: none. Matrix instructions of GPUs: every fragment puts each element somewhere once, fits the instruction's
// registers, and a wave that loads its fragments by them computes the product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/machine/machine.h"

namespace lumen {
namespace {

using loop::Collective;
using loop::Fragment;
using machine::Machine;
using machine::MatrixRow;

template <typename Test>
void each_row(const Test& test) {
  std::set<std::string> seen;  // generations share rows
  for (const auto& m : machine::all_machines())
    for (const MatrixRow& r : m->matrices) {
      SCOPED_TRACE(m->name + " " + r.row);
      test(*m, r);
    }
}

const Fragment& of(const MatrixRow& r, size_t i) {
  return r.collective->operands[i].fragment;
}

TEST(MachineMatrix, FragmentsArePermutationsOfTheirTiles) {
  int rows = 0;
  each_row([&](const Machine& m, const MatrixRow& r) {
    ++rows;
    ASSERT_TRUE(r.collective);
    EXPECT_EQ(r.row, machine::matrix_name(r));
    EXPECT_EQ(r.collective->lanes % m.wave, 0);
    for (size_t i = 0; i < r.collective->operands.size(); ++i) {
      const Collective::Operand& o = r.collective->operands[i];
      const Fragment& f = o.fragment;
      const int64_t count = int64_t{f.rows} * f.columns;
      EXPECT_TRUE(covers(f.layout, count, f.bits));
      EXPECT_EQ(f.rows, o.side == Collective::Side::b ? r.n : r.m);
      EXPECT_EQ(f.columns, o.side == Collective::Side::acc ? r.n : i > 2 ? r.k / r.scale_group : r.k);
      std::set<int64_t> places;
      for (int copy = 0; copy < f.copies; ++copy)
        for (int64_t e = 0; e < count; ++e) {
          const int64_t bit = f.bit_of(e) + copy * f.copy_bits;
          EXPECT_TRUE(places.insert(bit).second) << "element " << e << " shares bit " << bit;
          if (!o.in_memory) {
            EXPECT_LT(bit, int64_t{f.lane_bits} * r.collective->lanes);
          }
        }
      // Nothing is left over: registers hold just the tile, its copies, and of scales one byte a lane.
      if (!o.in_memory && i < 3) {
        EXPECT_EQ(count * f.bits * f.copies, int64_t{f.lane_bits} * r.collective->lanes);
      }
    }
  });
  EXPECT_GT(rows, 60);
}

// Facts anybody can look up, one of each family: operand, element (row, column) -> lane, element of the lane.
struct Known {
  const char* machine;
  const char* row;
  size_t operand;
  int at_row, at_column, lane, element;
};

TEST(MachineMatrix, KnownPlaces) {
  const Known known[] = {
      // PTX ISA, mma.m16n8k16: a3 of lane 5 (group 1, thread 1) is row 9, column 3; b2 is k 10, column 1; c2 row 9.
      {"sm_80", "mma.16x8x16.f16f16.f32", 1, 9, 3, 5, 3},
      {"sm_80", "mma.16x8x16.f16f16.f32", 1, 9, 11, 5, 7},
      {"sm_80", "mma.16x8x16.f16f16.f32", 2, 1, 10, 5, 2},
      {"sm_80", "mma.16x8x16.f16f16.f32", 0, 9, 2, 5, 2},
      // mma.m16n8k32 of bytes: a9 of lane 6 (group 1, thread 2): row 1, column 2 * 4 + 1 + 16.
      {"sm_80", "mma.16x8x32.i8i8.i32", 1, 1, 25, 6, 9},
      {"sm_80", "mma.16x8x32.i8i8.i32", 2, 1, 25, 6, 5},
      // wgmma: d5 of lane 37 (warp 1, group 1, thread 1): row 16 + 1, column 8 + 2 + 1.
      {"sm_90a", "product.64x128x16.bf16bf16.f32", 0, 17, 11, 37, 5},
      {"sm_90a", "product.64x128x16.bf16bf16.f32", 0, 25, 11, 37, 7},
      // V_MFMA_F32_32X32X8_F16: A[5][6] in lane 5 + 32, half 2; D[13][7]: block 1 of eight rows, second four.
      {"gfx908", "mma.32x32x8.f16f16.f32", 1, 5, 6, 37, 2},
      {"gfx908", "mma.32x32x8.f16f16.f32", 0, 13, 7, 39, 5},
      {"gfx90a", "mma.16x16x16.bf16bf16.f32", 0, 13, 7, 55, 1},
      {"gfx942", "mma.16x16x32.e4m3ue4m3u.f32", 1, 3, 21, 35, 5},
      {"gfx950", "mma.16x16x32.f16f16.f32", 1, 3, 21, 35, 5},
      {"gfx950", "mma.16x16x128.e2m1e2m1.f32.scaled", 1, 3, 70, 35, 6},
      {"gfx950", "mma.16x16x128.e4m3e4m3.f32.scaled", 1, 3, 70, 3, 22},
      {"gfx950", "mma.16x16x128.e4m3e4m3.f32.scaled", 3, 3, 2, 35, 0},
      // V_WMMA_F32_16X16X16_F16: RDNA3 rows alternate between the halves of the lanes, RDNA4's are apart by eight.
      {"gfx1100", "mma.16x16x16.f16f16.f32", 1, 3, 12, 3, 12},
      {"gfx1100", "mma.16x16x16.f16f16.f32", 0, 5, 7, 23, 2},
      {"gfx1200", "mma.16x16x16.f16f16.f32", 1, 3, 12, 19, 4},
      {"gfx1200", "mma.16x16x16.f16f16.f32", 0, 13, 7, 23, 5},
  };
  for (const Known& k : known) {
    const auto m = machine::find_machine(k.machine);
    const auto r = std::find_if(m->matrices.begin(), m->matrices.end(), [&](const auto& x) { return x.row == k.row; });
    ASSERT_NE(r, m->matrices.end()) << k.machine << " " << k.row;
    const Fragment& f = of(*r, k.operand);
    EXPECT_EQ(f.bit_of(int64_t{k.at_row} * f.columns + k.at_column), int64_t{k.lane} * f.lane_bits + k.element * f.bits)
        << k.machine << " " << k.row << " operand " << k.operand;
  }
}

double code_value(const machine::FloatCode& c, int code) {
  const int exponent = code >> c.mantissa & ((1 << c.exponent) - 1), fraction = code & ((1 << c.mantissa) - 1);
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - c.bias - c.mantissa)
                                    : std::ldexp(fraction + (1 << c.mantissa), exponent - c.bias - c.mantissa);
  return code >> (c.exponent + c.mantissa) & 1 ? -size : size;
}

// One wave (or group of waves) executes the row once on tiles whose registers are filled from memory as the fragments
// say; the result is D = A B + C in exact arithmetic, because all numbers are small.
TEST(MachineMatrix, AWaveComputesTheProduct) {
  std::mt19937 random(7);
  std::set<std::string> done;
  each_row([&](const Machine& m, const MatrixRow& r) {
    // Generations share most rows; the widest products take long.
    const std::string which = m.triple + std::to_string(m.wave) + r.row + std::to_string(of(r, 1).copies);
    if (!done.insert(which).second || r.n > 64) return;
    const Collective& c = *r.collective;
    std::vector<std::vector<uint8_t>> memory(c.operands.size() + 1);
    std::vector<std::vector<double>> numbers(c.operands.size());
    loop::Builder b("wave");
    std::vector<loop::BufferId> buffers;
    for (size_t i = 0; i <= c.operands.size(); ++i) {
      const Collective::Operand& o = c.operands[i % c.operands.size()];
      const Fragment& f = o.fragment;
      const int64_t bytes = o.in_memory ? int64_t{f.rows} * 128 : int64_t{f.lane_bits} / 8 * c.lanes;
      buffers.push_back(b.param("x" + std::to_string(i), bytes, i == c.operands.size()));
      memory[i].assign(static_cast<size_t>(bytes), 0);
      if (i == c.operands.size()) break;
      for (int64_t e = 0; e < int64_t{f.rows} * f.columns; ++e) {
        uint64_t bits = 0;
        double x = static_cast<double>(random() % 9) - 4;
        const machine::Factor& factor = o.side == Collective::Side::a ? r.a : r.b;
        if (i > 2) {  // a scale
          bits = 126 + random() % 3;
          x = std::ldexp(1, static_cast<int>(bits) - 127);
        } else if (i == 0 ? is_float(r.acc) : factor.scalar == Scalar::f32) {
          const auto y = static_cast<float>(x);
          std::memcpy(&bits, &y, 4);
        } else if (i > 0 && factor.code) {
          bits = random() & ((1U << f.bits) - 1);
          if (f.bits == 8) bits = (bits & 0x80) | (0x30 + bits % 12);
          x = code_value(*factor.code, static_cast<int>(bits));
        } else if (i > 0 && factor.scalar == Scalar::f16) {
          bits = f32_to_f16(static_cast<float>(x));
        } else if (i > 0 && factor.scalar == Scalar::bf16) {
          bits = f32_to_bf16(static_cast<float>(x));
        } else {
          bits = static_cast<uint64_t>(static_cast<int64_t>(x));
        }
        numbers[i].push_back(x);
        for (int copy = 0; copy < f.copies; ++copy)
          for (int bit = 0; bit < f.bits; ++bit) {
            int64_t at = f.bit_of(e) + copy * f.copy_bits + bit;
            if (f.swizzle > 0) at ^= ((at / 8 >> 7) % f.swizzle) * 16 * 8;
            if (bits >> bit & 1) memory[i][static_cast<size_t>(at / 8)] |= static_cast<uint8_t>(1U << at % 8);
          }
      }
    }
    const auto type = [&](size_t i) -> loop::VType {
      const Fragment& f = of(r, i);
      if (i == 0) return {r.acc, f.lane_bits / 32};
      const machine::Factor& factor = c.operands[i].side == Collective::Side::a ? r.a : r.b;
      if (i > 2 || factor.code) return {Scalar::u8, f.lane_bits / 8};
      return {factor.scalar, f.lane_bits / scalar_bits(factor.scalar)};
    };
    b.loop(loop::LoopKind::grid, b.i64(0), b.i64(1), 1, [&](loop::Expr) {
      std::vector<loop::BufferId> shared(c.operands.size(), -1);
      for (size_t i = 0; i < c.operands.size(); ++i)
        if (c.operands[i].in_memory)
          shared[i] = b.alloc(static_cast<int64_t>(memory[i].size()), 1024, loop::Space::shared);
      if (r.in_shared) {
        b.loop(loop::LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](loop::Expr lane) {
          for (size_t i = r.a_in_registers ? 2 : 1; i < 3; ++i) {
            const int64_t share = static_cast<int64_t>(memory[i].size()) / c.lanes;
            b.loop(loop::LoopKind::serial, b.i64(0), b.i64(share), 16, [&](loop::Expr at) {
              const loop::Expr place = lane * share + at;
              b.copy(shared[i], place, buffers[i], place, 16);
            });
          }
          b.commit(loop::Flow::copies);
          b.wait(loop::Flow::copies, 0);
        });
        b.barrier();
      }
      b.loop(loop::LoopKind::lane, b.i64(0), b.i64(c.lanes), 1, [&](loop::Expr lane) {
        const auto place = [&](size_t i) { return lane * (of(r, i).lane_bits / 8); };
        std::vector<loop::Expr> operands;
        for (size_t i = 0; i < c.operands.size(); ++i)
          if (!c.operands[i].in_memory) operands.push_back(b.load(buffers[i], type(i), place(i)));
        const loop::Expr out = r.a_in_registers ? b.product(r.row, operands[0], operands[1], shared[2], b.i64(0))
                               : r.in_shared ? b.product(r.row, operands[0], shared[1], b.i64(0), shared[2], b.i64(0))
                                             : b.inst(r.row, type(0), operands);
        b.store(buffers.back(), out, place(0));
      });
    });
    const loop::Kernel kernel = b.finish();
    std::vector<std::span<uint8_t>> spans(memory.begin(), memory.end());
    loop::eval(kernel, spans, [&](std::string_view row) { return m.meaning(row); }, m.wave);
    int wrong = 0;
    for (int y = 0; y < r.m && wrong == 0; ++y)
      for (int x = 0; x < r.n; ++x) {
        double want = numbers[0][static_cast<size_t>(y * r.n + x)];
        for (int k = 0; k < r.k; ++k) {
          double product = numbers[1][static_cast<size_t>(y * r.k + k)] * numbers[2][static_cast<size_t>(x * r.k + k)];
          if (r.scale_group > 0) {
            const int groups = r.k / r.scale_group, g = k / r.scale_group;
            product *=
                numbers[3][static_cast<size_t>(y * groups + g)] * numbers[4][static_cast<size_t>(x * groups + g)];
          }
          want += product;
        }
        const int64_t bit = of(r, 0).bit_of(y * r.n + x);
        double got = 0;
        if (is_float(r.acc)) {
          float f = 0;
          std::memcpy(&f, memory.back().data() + bit / 8, 4);
          got = f;
        } else {
          int32_t i = 0;
          std::memcpy(&i, memory.back().data() + bit / 8, 4);
          got = i;
        }
        if (std::fabs(got - want) > 1e-5 * (1 + std::fabs(want))) ++wrong;
      }
    EXPECT_EQ(wrong, 0);
  });
}

}  // namespace
}  // namespace lumen
