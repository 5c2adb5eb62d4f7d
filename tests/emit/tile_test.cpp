// needs: none. Kernels for the matrix unit become its instructions, with sums that stay in tile registers.

#include <gtest/gtest.h>

#include "emit/emit.h"
#include "kernel/loop/build.h"

namespace lumen {
namespace {

using loop::Expr;
using loop::LoopKind;
using loop::VType;

constexpr int64_t kTileBytes = 1024;

// sums += a tile by tile, over the tiles of a and b.
loop::Kernel products(const machine::TileRow& t) {
  constexpr int64_t kTiles = 8;
  loop::Builder b("tiles");
  const loop::BufferId x = b.param("x", kTiles * kTileBytes, false), y = b.param("y", kTiles * kTileBytes, false),
                       z = b.param("z", kTileBytes, true);
  const VType sum{t.acc, t.rows * t.columns}, codes{t.a, t.rows * t.k};
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
    const loop::BufferId sums = b.alloc(kTileBytes);
    b.store(sums, is_float(t.acc) ? b.real(0, sum) : b.integer(0, sum), b.i64(0), 64);
    b.loop(LoopKind::serial, b.i64(0), b.i64(kTiles * kTileBytes), kTileBytes, [&](Expr at) {
      const Expr before = b.load(sums, sum, b.i64(0), 64);
      b.store(sums, b.inst(t.row, sum, {before, b.load(x, codes, at, 64), b.load(y, codes, at, 64)}), b.i64(0), 64);
    });
    b.store(z, b.load(sums, sum, b.i64(0), 64), b.i64(0), 64);
  });
  return b.finish();
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(Tile, ProductsAreInstructionsOfTheUnit) {
  const auto m = machine::find_machine("amx");
  ASSERT_EQ(m->tiles.size(), 2U);
  for (const machine::TileRow& t : m->tiles) {
    const loop::Kernel k = products(t);
    const std::string text = emit::emit(std::span(&k, 1), *m, emit::Output::assembly);
    EXPECT_EQ(count(text, t.a == Scalar::i8 ? "tdpbssd" : "tdpbf16ps"), 1) << text;
    EXPECT_EQ(count(text, "tileloadd"), 2) << text;
    EXPECT_EQ(count(text, "tilestored"), 1) << text;  // the sums never leave their register
    EXPECT_EQ(count(text, "tilezero"), 1) << text;
    EXPECT_GE(count(text, "ldtilecfg"), 1) << text;
  }
}

// Runs of K, each with sums of its own that begin at zero: `tiles` products side by side read one factor.
loop::Kernel runs(const machine::TileRow& t, int tiles) {
  constexpr int64_t kRun = 4 * kTileBytes, kLength = 4 * kRun;
  loop::Builder b("runs");
  const loop::BufferId x = b.param("x", kLength * tiles, false), y = b.param("y", kLength, false),
                       z = b.param("z", kTileBytes * tiles * 4, true);
  const VType sum{t.acc, t.rows * t.columns}, codes{t.a, t.rows * t.k};
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr) {
    std::vector<loop::BufferId> sums;
    for (int i = 0; i < tiles; ++i) sums.push_back(b.alloc(kTileBytes));
    b.loop(LoopKind::serial, b.i64(0), b.i64(kLength), kRun, [&](Expr run) {
      for (const loop::BufferId s : sums)
        b.store(s, is_float(t.acc) ? b.real(0, sum) : b.integer(0, sum), b.i64(0), 64);
      b.loop(LoopKind::serial, run, run + kRun, kTileBytes, [&](Expr at) {
        const Expr factor = b.load(y, codes, at, 64);
        for (int i = 0; i < tiles; ++i) {
          const Expr other = b.load(x, codes, at + b.i64(i * kLength), 64);
          b.store(sums[i], b.inst(t.row, sum, {b.load(sums[i], sum, b.i64(0), 64), other, factor}), b.i64(0), 64);
        }
      });
      for (int i = 0; i < tiles; ++i)
        b.store(z, b.load(sums[i], sum, b.i64(0), 64), run * tiles / 4 + b.i64(i * kTileBytes), 64);
    });
  });
  return b.finish();
}

// LLVM's own pass for tiles that go round loops read what it had freed here, now and then.
TEST(Tile, SumsThatBeginTogetherStayInRegisters) {
  const auto m = machine::find_machine("amx");
  for (const machine::TileRow& t : m->tiles)
    for (const int tiles : {2, 3, 4, 6}) {
      const loop::Kernel k = runs(t, tiles);
      for (int time = 0; time < 3; ++time) {
        const std::string text = emit::emit(std::span(&k, 1), *m, emit::Output::assembly);
        EXPECT_EQ(count(text, t.a == Scalar::i8 ? "tdpbssd" : "tdpbf16ps"), tiles) << text;
        EXPECT_EQ(count(text, "tileloadd"), tiles + 1) << text;
        EXPECT_EQ(count(text, "tilestored"), tiles) << text;
        EXPECT_EQ(count(text, "tilezero"), tiles) << text;
      }
    }
}

}  // namespace
}  // namespace lumen
