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

}  // namespace
}  // namespace lumen
