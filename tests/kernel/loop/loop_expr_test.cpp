// Operators of expressions against the instructions that they stand for.
#include <gtest/gtest.h>

#include "kernel/loop/build.h"
#include "kernel/loop/expr.h"
#include "kernel/loop/text.h"

namespace lumen::loop {
namespace {

TEST(LoopExpr, NoValueUntilThereIsOne) {
  Builder b("none");
  Expr x;
  EXPECT_FALSE(x.exists());
  x = b.i64(3);
  EXPECT_TRUE(x.exists());
  EXPECT_TRUE(x.is(b.i64(3)));
  EXPECT_FALSE(x.is(b.i64(4)));
}

TEST(LoopExpr, IntegersFoldAsTheScalarAlgebraSays) {
  Builder b("fold");
  const Expr x = b.i64(-7);
  const auto number = [&](Expr e) { return b.known_integer(e).value(); };
  EXPECT_EQ(number(x + 2), -5);
  EXPECT_EQ(number(2 + x), -5);
  EXPECT_EQ(number(x - 2), -9);
  EXPECT_EQ(number(2 - x), 9);
  EXPECT_EQ(number(x * 3), -21);
  EXPECT_EQ(number(x / 2), -4);  // rounded down
  EXPECT_EQ(number(x % 4), 1);
  EXPECT_EQ(number(x & 12), 8);
  EXPECT_EQ(number(x | 1), -7);
  EXPECT_EQ(number(x ^ 1), -8);
  EXPECT_EQ(number(x << 2), -28);
  EXPECT_EQ(number(x >> 1), -4);
  EXPECT_EQ(number(x < 0), 1);
  EXPECT_EQ(number(0 < x), 0);
  EXPECT_EQ(number(x <= -7), 1);
  EXPECT_EQ(number(x == -7), 1);
  EXPECT_EQ(number(x != -7), 0);
  EXPECT_EQ(number(!(x == -7)), 0);
  EXPECT_EQ(number(-x), 7);
  EXPECT_EQ(number(min(x, 3)), -7);
  EXPECT_EQ(number(max(x, 3)), 3);
  EXPECT_EQ(number(abs(x)), 7);
  EXPECT_EQ(number(select(x < 0, x, x + 1)), -7);
  Expr y = x;
  y += 5;
  y += x;
  EXPECT_EQ(number(y), -9);
  EXPECT_EQ(number(x), -7);
}

TEST(LoopExpr, NumbersTakeTheTypeBesideThem) {
  Builder b("types");
  const BufferId buffer = b.param("x", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
    const Expr f = b.load(buffer, {Scalar::f32, 4}, at), u = b.load(buffer, {Scalar::u8, 8}, at);
    EXPECT_EQ(b.type(f * 2), b.type(f));
    EXPECT_EQ(b.type(0.5 - f), b.type(f));
    EXPECT_EQ(b.type(u >> 4), b.type(u));
    EXPECT_EQ(b.type(u < 9).lanes, 8);
    EXPECT_EQ(b.type(cast(f, Scalar::i32)), (VType{Scalar::i32, 4}));
    EXPECT_EQ(b.type(bitcast(f, Scalar::u32)), (VType{Scalar::u32, 4}));
    b.store(buffer, fma(f, f, f * 2), at);
  });
  const std::string text = print(b.finish());
  EXPECT_NE(text.find("mul f32x4"), std::string::npos) << text;
  EXPECT_NE(text.find("fma f32x4"), std::string::npos) << text;
}

}  // namespace
}  // namespace lumen::loop
