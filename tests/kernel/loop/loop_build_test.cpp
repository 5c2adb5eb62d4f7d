// Needs: nothing. The builder folds and shares, the verifier refuses what the invariants forbid.
#include <gtest/gtest.h>

#include "kernel/loop/build.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"

namespace lumen::loop {
namespace {

constexpr VType kI64{Scalar::i64, 1};

// y[i] = x[i] * 2 + 1 for 64 numbers, 16 at a time.
Kernel scale_kernel() {
  Builder b("scale");
  const BufferId x = b.param("x", 256, false), y = b.param("y", 256, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(256), 64, [&](Expr at) {
    const VType v{Scalar::f32, 16};
    const Expr a = b.load(x, v, at, 4);
    b.store(y, fma(a, b.real(2, v), b.real(1, v)), at, 4);
  });
  return b.finish();
}

TEST(LoopBuild, CountsTasks) {
  EXPECT_EQ(scale_kernel().tasks, 4);
}

TEST(LoopBuild, TripCountDoesNotOverflow) {
  EXPECT_EQ(trip_count(0, 10, 3), 4);
  EXPECT_EQ(trip_count(5, 5, 1), 0);
  EXPECT_EQ(trip_count(7, 5, 1), 0);
  EXPECT_EQ(trip_count(INT64_MIN, INT64_MAX, INT64_MAX), 3);
}

TEST(LoopBuild, SharesEqualPureValues) {
  Builder b("share");
  const BufferId x = b.param("x", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(8), 1, [&](Expr i) {
    EXPECT_TRUE((i + 3).is(i + 3));
    const Expr outer = i * 8;
    b.loop(LoopKind::serial, b.i64(0), b.i64(2), 1, [&](Expr) { EXPECT_TRUE((i * 8).is(outer)); });
    const Expr a = b.load(x, {Scalar::f32, 1}, outer), c = b.load(x, {Scalar::f32, 1}, outer);
    EXPECT_FALSE(a.is(c));  // a store may lie between
    b.store(x, a + c, outer);
  });
  EXPECT_EQ(verify(b.kernel), "");
}

TEST(LoopBuild, FoldsConstants) {
  Builder b("fold");
  EXPECT_EQ(b.known_integer(b.i64(40) + 2), 42);
  EXPECT_EQ(b.known_integer(b.i64(-7) / 2), -4);
  const VType u8{Scalar::u8, 4};
  EXPECT_EQ(b.known_integer(b.integer(200, u8) + 100), 44);
  const Expr x = b.real(0.1, {Scalar::f32, 1});
  EXPECT_TRUE((x * 2).is(b.real(0.2, {Scalar::f32, 1})));
  EXPECT_FALSE(b.real(0.0, {Scalar::f32, 1}).is(b.real(-0.0, {Scalar::f32, 1})));
  EXPECT_EQ(b.known_integer(b.i64(1) / 0), 0);
  EXPECT_EQ(b.known_integer(b.i64(1) % 0), 0);
}

TEST(LoopBuild, FoldsExactIntegerIdentities) {
  Builder b("identities");
  b.param("x", 8, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(8), 1, [&](Expr i) {
    EXPECT_TRUE((i + 0).is(i));
    EXPECT_TRUE((1 * i).is(i));
    EXPECT_EQ(b.known_integer(i * 0), 0);
    EXPECT_TRUE((i / 1).is(i));
  });
}

TEST(LoopBuild, BranchOnConstantKeepsOneSide) {
  Builder b("branch");
  int taken = 0;
  b.branch(b.integer(0, {Scalar::boolean, 1}), [&] { taken += 1; }, [&] { taken += 10; });
  EXPECT_EQ(taken, 10);
}

TEST(LoopBuild, AppliesFormulas) {
  Formula f;
  const int a = (f.inputs = {Scalar::f32}, f.input(0));
  f.outputs = {f.op(ScalarOp::neg_, f.op(ScalarOp::mul_, a, a))};
  Builder b("apply");
  const BufferId x = b.param("x", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr i) {
    const Expr v = b.load(x, {Scalar::f32, 16}, i);
    EXPECT_TRUE(b.apply(f, {v})[0].is(-(v * v)));
  });
}

TEST(LoopRules, TypesOfScalarOperations) {
  const VType f{Scalar::f32, 8}, i{Scalar::i32, 8}, t{Scalar::boolean, 8};
  const auto typed = [](ScalarOp op, std::vector<VType> v, std::optional<Scalar> to = {}) {
    return type_of(op, v, to);
  };
  EXPECT_EQ(typed(ScalarOp::lt_, {f, f}).type, t);
  EXPECT_EQ(typed(ScalarOp::select_, {t, f, f}).type, f);
  EXPECT_EQ(typed(ScalarOp::ldexp_, {f, i}).type, f);
  EXPECT_EQ(typed(ScalarOp::cast_, {f}, Scalar::i32).type, i);
  EXPECT_EQ(typed(ScalarOp::and_, {t, t}).type, t);
  EXPECT_FALSE(typed(ScalarOp::add_, {f, i}).error.empty());
  EXPECT_FALSE(typed(ScalarOp::add_, {t, t}).error.empty());
  EXPECT_FALSE(typed(ScalarOp::shl_, {f, f}).error.empty());
  EXPECT_FALSE(typed(ScalarOp::exp_, {i}).error.empty());
  EXPECT_FALSE(typed(ScalarOp::bitcast_, {f}, Scalar::i64).error.empty());
  EXPECT_FALSE(typed(ScalarOp::add_, {f, {Scalar::f32, 4}}).error.empty());
}

// One damaged kernel for each rule of the verifier.
TEST(LoopVerify, RefusesDamage) {
  const auto damaged = [](auto&& damage) {
    Kernel k = scale_kernel();
    damage(k, k.body.code.back().regions[0].code);
    return verify(k);
  };
  EXPECT_EQ(verify(scale_kernel()), "");
  EXPECT_NE(damaged([](Kernel& k, auto&) { k.params[1].written = false; }).find("not declared written"),
            std::string::npos);
  EXPECT_NE(damaged([](Kernel& k, auto&) { k.params[0].align = 3; }).find("aligned to 3"), std::string::npos);
  EXPECT_NE(damaged([](Kernel&, auto& code) { std::swap(code.front(), code.back()); }).find("not visible"),
            std::string::npos);
  EXPECT_NE(damaged([](Kernel&, auto& code) { code.push_back(code[0]); }).find("defined twice"), std::string::npos);
  EXPECT_NE(damaged([](Kernel& k, auto&) {
              ++k.value_count;
              k.value_types.push_back(kI64);
            }).find("gaps"),
            std::string::npos);
  EXPECT_NE(damaged([](Kernel& k, auto&) { k.body.code.push_back(k.body.code.back()); }).find("must end the body"),
            std::string::npos);
  EXPECT_NE(damaged([](Kernel&, auto& code) { code.back().buffer = 9; }).find("buffer @9"), std::string::npos);
  EXPECT_NE(damaged([](Kernel&, auto& code) {
              code.back().operands = {code.back().operands[0], code.back().operands[0]};
            }).find("not i64"),
            std::string::npos);
  EXPECT_NE(damaged([](Kernel&, auto& code) {
              Instr inner{};
              inner.op = Op::loop_;
              inner.kind = LoopKind::parallel;
              inner.operands = {0, 1};
              inner.regions.resize(1);
              code.push_back(inner);
            }).find("must end the body"),
            std::string::npos);
}

TEST(LoopBuild, ConstantsStandBeforeTheirFirstUse) {
  Builder unused("unused");
  const BufferId only = unused.param("y", 64, true);
  unused.loop(LoopKind::parallel, unused.i64(0), unused.i64(1), 1, [&](Expr at) {
    unused.i64(99);
    unused.store(only, at, at);
  });
  EXPECT_EQ(print(unused.finish()).find("99"), std::string::npos);
  Builder b("order");
  const BufferId y = b.param("y", 64, true);
  Builder other("order");
  const BufferId z = other.param("y", 64, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
    const Expr five = b.i64(5), x = at + 2;
    b.store(y, x * five, x);
  });
  other.loop(LoopKind::parallel, other.i64(0), other.i64(1), 1, [&](Expr at) {
    const Expr x = at + 2;
    other.store(z, x * 5, x);
  });
  const Kernel first = b.finish(), second = other.finish();
  EXPECT_EQ(print(first), print(second));
  EXPECT_EQ(verify(first), "");
  EXPECT_EQ(first.value_count, static_cast<int>(first.value_types.size()));
}

}  // namespace
}  // namespace lumen::loop
