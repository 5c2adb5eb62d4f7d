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
  b.loop(LoopKind::parallel, b.i64(0), b.i64(256), 64, [&](ValueId at) {
    const VType v{Scalar::f32, 16};
    const ValueId a = b.load(x, v, at, 4);
    b.store(y, b.op(ScalarOp::fma_, a, b.real(2, v), b.real(1, v)), at, 4);
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
  b.loop(LoopKind::parallel, b.i64(0), b.i64(8), 1, [&](ValueId i) {
    EXPECT_EQ(b.add(i, b.i64(3)), b.add(i, b.i64(3)));
    const ValueId outer = b.mul(i, b.i64(8));
    b.loop(LoopKind::serial, b.i64(0), b.i64(2), 1, [&](ValueId) { EXPECT_EQ(b.mul(i, b.i64(8)), outer); });
    const ValueId a = b.load(x, {Scalar::f32, 1}, outer), c = b.load(x, {Scalar::f32, 1}, outer);
    EXPECT_NE(a, c);  // a store may lie between
    b.store(x, b.add(a, c), outer);
  });
  EXPECT_EQ(verify(b.kernel), "");
}

TEST(LoopBuild, FoldsConstants) {
  Builder b("fold");
  EXPECT_EQ(b.known_integer(b.add(b.i64(40), b.i64(2))), 42);
  EXPECT_EQ(b.known_integer(b.op(ScalarOp::div_, b.i64(-7), b.i64(2))), -4);
  const VType u8{Scalar::u8, 4};
  EXPECT_EQ(b.known_integer(b.add(b.integer(200, u8), b.integer(100, u8))), 44);
  const ValueId x = b.real(0.1, {Scalar::f32, 1});
  EXPECT_EQ(b.op(ScalarOp::mul_, x, b.real(2, {Scalar::f32, 1})), b.real(0.2, {Scalar::f32, 1}));
  EXPECT_NE(b.real(0.0, {Scalar::f32, 1}), b.real(-0.0, {Scalar::f32, 1}));
  EXPECT_EQ(b.known_integer(b.op(ScalarOp::div_, b.i64(1), b.i64(0))), 0);
  EXPECT_EQ(b.known_integer(b.op(ScalarOp::rem_, b.i64(1), b.i64(0))), 0);
}

TEST(LoopBuild, FoldsExactIntegerIdentities) {
  Builder b("identities");
  b.param("x", 8, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(8), 1, [&](ValueId i) {
    EXPECT_EQ(b.add(i, b.i64(0)), i);
    EXPECT_EQ(b.mul(b.i64(1), i), i);
    EXPECT_EQ(b.known_integer(b.mul(i, b.i64(0))), 0);
    EXPECT_EQ(b.op(ScalarOp::div_, i, b.i64(1)), i);
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
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](ValueId i) {
    const ValueId v = b.load(x, {Scalar::f32, 16}, i);
    EXPECT_EQ(b.apply(f, {v})[0], b.op(ScalarOp::neg_, b.mul(v, v)));
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

}  // namespace
}  // namespace lumen::loop
