// needs: none. Kernels of outer products become functions in streaming mode whose sums stay in the unit's tiles; what
// is around them does not.
#include <gtest/gtest.h>

#include <map>

#include "emit/emit.h"
#include "kernel/loop/build.h"

namespace lumen {
namespace {

using loop::Expr;
using loop::LoopKind;
using loop::VType;

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// Runs of K, each with sums of its own that begin at zero or in memory: `tiles` products side by side read one factor.
loop::Kernel runs(const machine::TileRow& t, int tiles, bool zero) {
  const int64_t tile = int64_t{4} * t.rows * t.columns, vector = int64_t{4} * t.rows, run = 8 * vector;
  loop::Builder b("runs");
  const loop::BufferId x = b.param("x", 4 * run * tiles, false), y = b.param("y", 4 * run, false),
                       z = b.param("z", tile * tiles * 4, true);
  const VType sum{t.acc, t.rows * t.columns}, rows{t.a, t.rows * t.k}, columns{t.b, t.columns * t.k};
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
    std::vector<loop::BufferId> sums;
    for (int i = 0; i < tiles; ++i) sums.push_back(b.alloc(tile));
    b.loop(LoopKind::serial, b.i64(0), b.i64(4), 1, [&](Expr number) {
      const auto place = [&](int i) { return number * (tile * tiles) + i * tile; };
      for (int i = 0; i < tiles; ++i) {
        const Expr none = is_float(t.acc) ? b.real(0, sum) : b.integer(0, sum);
        b.store(sums[i], zero ? none : b.load(z, sum, place(i), 64), b.i64(0), 64);
      }
      b.loop(LoopKind::serial, number * run, number * run + run, vector, [&](Expr at) {
        const Expr factor = b.load(y, columns, at, 4);
        for (int i = 0; i < tiles; ++i) {
          const Expr other = b.load(x, rows, at + i * 4 * run, 4);
          b.store(sums[i], b.inst(t.row, sum, {b.load(sums[i], sum, b.i64(0), 64), other, factor}), b.i64(0), 64);
        }
      });
      for (int i = 0; i < tiles; ++i) b.store(z, b.load(sums[i], sum, b.i64(0), 64), place(i), 64);
    });
  });
  return b.finish();
}

TEST(Streaming, SumsStayInTiles) {
  const auto m = machine::find_machine("sme-512");
  const std::map<std::string, std::string> names = {
      {"outer4.i8i8.i32x16x16", "\tsmopa\t"},      {"outer4.i8u8.i32x16x16", "\tsumopa\t"},
      {"outer4.u8i8.i32x16x16", "\tusmopa\t"},     {"outer4.u8u8.i32x16x16", "\tumopa\t"},
      {"outer2.bf16bf16.f32x16x16", "\tbfmopa\t"}, {"outer2.f16f16.f32x16x16", "\tfmopa\t"},
      {"outer1.f32f32.f32x16x16", "\tfmopa\t"}};
  ASSERT_EQ(m->tiles.size(), names.size());
  for (const machine::TileRow& t : m->tiles)
    for (const int tiles : {1, 4})
      for (const bool zero : {false, true}) {
        const loop::Kernel k = runs(t, tiles, zero);
        const std::string text = emit::emit(std::span(&k, 1), *m, emit::Output::assembly);
        EXPECT_EQ(count(text, names.at(t.row)), tiles) << text;
        for (int i = 0; i < tiles; ++i) {
          EXPECT_EQ(count(text, fmt::format("st1w\t{{za{}h.s", i)), 1) << text;
          EXPECT_EQ(count(text, fmt::format("ld1w\t{{za{}h.s", i)), zero ? 0 : 1) << text;
        }
        EXPECT_EQ(count(text, "smstart\tsm"), 1) << text;
        EXPECT_EQ(count(text, "smstart\tza"), 1) << text;
        // Its return address is kept where that routine is called.
        EXPECT_EQ(count(text.substr(text.find("_streaming:")), "stp\tx29, x30"), 1) << text;
        EXPECT_EQ(count(text, "smstop\tsm"), 1) << text;
        EXPECT_EQ(count(text, "bl\t__arm_tpidr2_save"), 1) << text;  // a caller's own tiles
        EXPECT_EQ(count(text, "__arm_tpidr2_save:"), 1) << text;     // which no library need have
      }
}

TEST(Streaming, KernelsWithoutProductsAreOrdinary) {
  const auto m = machine::find_machine("sme-512");
  loop::Builder b("copies");
  const loop::BufferId x = b.param("x", 1024, false), y = b.param("y", 1024, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(16), 1,
         [&](Expr task) { b.store(y, b.load(x, {Scalar::f32, 16}, task * 64, 64), task * 64, 64); });
  const loop::Kernel k = b.finish();
  const std::string text = emit::emit(std::span(&k, 1), *m, emit::Output::assembly);
  EXPECT_EQ(count(text, "smst") + count(text, "tpidr2"), 0) << text;
}

}  // namespace
}  // namespace lumen
