// needs: none. Products of a block: every instruction of every GPU, and none, against sums taken one by one. Panels
// hold small integers, so that any order of adding is exact.
#include "kernel/synth/mma/block_product.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernel/loop/eval/eval.h"
#include "tests/verified.h"

namespace lumen::synth {
namespace {

using loop::Expr;
using loop::LoopKind;
using Side = BlockProduct::Side;

using Bytes = std::vector<uint8_t>;

Bytes panel_of(Scalar s, const std::vector<float>& x) {
  Bytes out;
  for (const float v : x) {
    const uint16_t half = s == Scalar::f16 ? f32_to_f16(v) : f32_to_bf16(v);
    const size_t bytes = static_cast<size_t>(scalar_bytes(s));
    out.resize(out.size() + bytes);
    std::memcpy(out.data() + out.size() - bytes, s == Scalar::f32 ? static_cast<const void*>(&v) : &half, bytes);
  }
  return out;
}

// Two stages of K, one block.
void check(const machine::Machine& m, const BlockTile& tile) {
  SCOPED_TRACE(m.name + " " + (tile.row ? tile.row->row : "fma"));
  const int64_t rows = tile.m(), columns = tile.n(), k = 2 * tile.stage_k;
  std::mt19937 random(3);
  std::vector<float> a(static_cast<size_t>(rows * k)), c(static_cast<size_t>(columns * k));
  for (auto* x : {&a, &c})
    for (float& v : *x) v = static_cast<float>(static_cast<int>(random() % 9) - 4);
  loop::Builder b("product");
  const int64_t bytes = scalar_bytes(tile.factor);
  const loop::BufferId left = b.param("a", rows * k * bytes, false), right = b.param("b", columns * k * bytes, false),
                       out = b.param("sums", rows * columns * 4, true);
  b.loop(LoopKind::grid, b.i64(0), b.i64(1), 1, [&](Expr) {
    BlockProduct p(b, m, tile);
    const loop::BufferId as = b.alloc(p.panel_bytes(Side::a), BlockProduct::kAlign, loop::Space::shared),
                         bs = b.alloc(p.panel_bytes(Side::b), BlockProduct::kAlign, loop::Space::shared);
    const Expr lanes = b.i64(tile.lanes());
    b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr) { p.clear(); });
    b.loop(LoopKind::serial, b.i64(0), b.i64(2), 1, [&](Expr stage) {
      b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) {
        const auto fill = [&](Side side, loop::BufferId from, loop::BufferId to, int64_t count) {
          b.loop(LoopKind::serial, lane, b.i64(count * p.units()), tile.lanes(), [&](Expr at) {
            const Expr row = at / p.units(), unit = at % p.units();
            const Expr first = row * k + stage * tile.stage_k + unit * p.unit_elements();
            const Expr x = b.load(from, {tile.factor, static_cast<int>(p.unit_elements())}, first * bytes, 16);
            b.store(to, x, p.place(side, row, unit), 16);
          });
        };
        // Numbers of eight rows at one k, which stand beside each other.
        const auto fill_beside = [&](Side side, loop::BufferId from, loop::BufferId to, int64_t count) {
          const int64_t units = count / p.unit_elements();
          b.loop(LoopKind::serial, lane, b.i64(tile.stage_k * units), tile.lanes(), [&](Expr at) {
            const Expr unit = at % units, inside = at / units, first = unit * p.unit_elements();
            const Expr x = b.join(static_cast<int>(p.unit_elements()), [&](int i) {
              return b.load(from, {tile.factor, 1}, ((first + i) * k + stage * tile.stage_k + inside) * bytes, 2);
            });
            b.store(to, x, p.transposed_place(side, unit, inside), 16);
          });
        };
        p.is_transposed(Side::a) ? fill_beside(Side::a, left, as, rows) : fill(Side::a, left, as, rows);
        p.is_transposed(Side::b) ? fill_beside(Side::b, right, bs, columns) : fill(Side::b, right, bs, columns);
      });
      b.barrier();
      b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) { p.multiply(lane, as, b.i64(0), bs, b.i64(0)); });
      b.barrier();
    });
    b.loop(LoopKind::lane, b.i64(0), lanes, 1, [&](Expr lane) {
      p.each_sum(lane, [&](Expr row, Expr column, Expr sums) { b.store(out, sums, (row * columns + column) * 4, 4); });
    });
  });
  const loop::Kernel kernel = b.finish();
  Bytes as = panel_of(tile.factor, a), bs = panel_of(tile.factor, c),
        result(static_cast<size_t>(rows * columns * 4), 0xcd);
  std::vector<std::span<uint8_t>> buffers{as, bs, result};
  loop::eval(kernel, buffers, [&](std::string_view row) { return m.meaning(row); }, m.wave);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      float want = 0, got = 0;
      for (int64_t x = 0; x < k; ++x) want += a[static_cast<size_t>(i * k + x)] * c[static_cast<size_t>(j * k + x)];
      std::memcpy(&got, &result[static_cast<size_t>((i * columns + j) * 4)], 4);
      ASSERT_EQ(got, want) << i << ", " << j;
    }
}

TEST(BlockProduct, EveryInstructionOfEveryGpu) {
  int instructions = 0;
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->kind != machine::Kind::gpu) continue;
    for (const Scalar factor : {Scalar::f32, Scalar::f16, Scalar::bf16}) {
      for (const machine::MatrixRow& r : m->matrices) {
        if (r.scale_group > 0 || r.acc != Scalar::f32 || r.a.code || r.a.scalar != factor) continue;
        BlockTile tile{&r, factor, r.collective->lanes, 1, r.in_shared ? 1 : 2, 1, 2, 1};
        if (r.a_transposed || r.b_transposed || r.a_in_registers)
          continue;                             // by dot_block_test.cpp, synth_attend_block_test.cpp
        if (r.in_shared && r.n > 64) continue;  // the same but for the number of columns
        tile.stage_k = BlockProduct::step_k(*m, tile) * 2;
        check(*m, tile);
        ++instructions;
      }
    }
    BlockTile tile{nullptr, Scalar::f32, m->wave, 2, 1, 2, 3, 8};
    check(*m, tile);
    test::verified(m->name, m->matrices.empty() ? "dot" : "dot, matrix", "evaluated");
  }
  EXPECT_GT(instructions, 30);
}

// Operands that the lanes of a wave load together, of rows of 64 and of 128 bytes, in both orders of their indices.
TEST(BlockProduct, OperandsLoadedTogether) {
  int checked = 0;
  for (const machine::MachineRef& m : machine::all_machines())
    for (const Scalar factor : {Scalar::f16, Scalar::bf16}) {
      const machine::MatrixRow* row = find_matrix(*m, {factor, {}}, 16);
      if (!row || m->loads.empty()) continue;
      for (const bool a_beside : {false, true})
        for (const bool b_beside : {false, true})
          for (const int halves : {1, 2}) {
            BlockTile tile{row, factor, m->wave, 2, 2, 2, 4, 1};
            tile.loads = true;
            tile.a_beside = a_beside;
            tile.b_beside = b_beside;
            tile.stage_k = BlockProduct::step_k(*m, tile) * halves;
            ASSERT_TRUE(BlockProduct::can_load(*m, tile));
            check(*m, tile);
            ++checked;
          }
      BlockTile odd{row, factor, m->wave, 2, 2, 2, 1, 1};  // a load brings two of the right operands
      EXPECT_FALSE(BlockProduct::can_load(*m, odd));
      odd.tiles_n = 2;
      EXPECT_TRUE(BlockProduct::can_load(*m, odd));
      odd.b_beside = true;  // 32 rows are no whole run
      EXPECT_FALSE(BlockProduct::can_load(*m, odd));
      if (m->name != "sm_80") break;
    }
  EXPECT_GE(checked, 8);
}

}  // namespace
}  // namespace lumen::synth
