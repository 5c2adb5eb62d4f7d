// Needs: nothing. What a right kernel may give for a formula: exact where nothing is rounded, a few units where
// functions are, and unknown where what is known decides nothing.
#include "run/engine/verify/launch_trial/bounded.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lumen::run {
namespace {

// An operation of f32 numbers.
Bounded of(ScalarOp op, std::vector<Bounded> x) {
  Formula f;
  f.inputs.assign(x.size(), Scalar::f32);
  f.outputs = {f.op(op, f.input(0), x.size() > 1 ? f.input(1) : -1)};
  return bounded_formula(f, x);
}

TEST(Bounded, ExactNumbersStayExact) {
  const Bounded product = of(ScalarOp::mul_, {{1.5, 0}, {-2.25, 0}});
  EXPECT_EQ(product.value, -3.375);
  EXPECT_EQ(product.error, 0);
  const Bounded third = of(ScalarOp::mul_, {{1 + 0x1p-23, 0}, {1 + 0x1p-23, 0}});
  EXPECT_GT(third.error, 0) << "a rounding";
  EXPECT_LT(third.error, 1e-6);
}

TEST(Bounded, ErrorsGrowAsTheyMust) {
  EXPECT_NEAR(of(ScalarOp::add_, {{1, 0.25}, {2, 0.5}}).error, 0.75, 1e-5);
  EXPECT_NEAR(of(ScalarOp::mul_, {{3, 0.25}, {-2, 0.5}}).error, 3 * 0.5 + 2 * 0.25 + 0.125, 1e-5);
  const Bounded root = of(ScalarOp::sqrt_, {{4, 0.41}});
  EXPECT_GE(root.error, 2 - std::sqrt(3.59));
  EXPECT_LT(root.error, 0.11);
  EXPECT_GE(of(ScalarOp::exp_, {{1, 0.1}}).error, std::exp(1.1) - std::exp(1.0));
  EXPECT_FALSE(of(ScalarOp::div_, {{1, 0}, {0.1, 0.2}}).known());
  EXPECT_FALSE(of(ScalarOp::log_, {{0.1, 0.2}}).known());
}

// In double precision nothing overflows; in a kernel it may.
TEST(Bounded, NothingIsKnownBeyondAType) {
  EXPECT_TRUE(of(ScalarOp::exp_, {{88, 0}}).known());
  EXPECT_FALSE(of(ScalarOp::exp_, {{124, 0}}).known());
  EXPECT_FALSE(of(ScalarOp::log_, {of(ScalarOp::exp_, {{-100, 0}})}).known()) << "the logarithm of zero, perhaps";
  EXPECT_FALSE(rounded(Scalar::f16, {1e5, 0}).known());
}

TEST(Bounded, StepsMatterWhereTheyAreNear) {
  EXPECT_EQ(of(ScalarOp::floor_, {{2.5, 0.25}}).error, 0);
  EXPECT_EQ(of(ScalarOp::floor_, {{2.9, 0.25}}).error, 1);
  EXPECT_EQ(rounded(Scalar::bf16, {1, 1e-4}).error, 0);
  EXPECT_EQ(rounded(Scalar::bf16, {1 + 0x1p-8, 1e-6}).error, 0x1p-7) << "a tie may fall either way";
}

TEST(Bounded, ChoicesAreMadeWhereTheyAreCertain) {
  Formula f;
  f.inputs.assign(3, Scalar::f32);
  f.outputs = {f.op(ScalarOp::select_, f.op(ScalarOp::lt_, f.input(0), f.input(1)), f.input(2), f.input(1))};
  const Bounded certain[] = {{1, 0.1}, {2, 0.1}, {7, 0}};
  EXPECT_EQ(bounded_formula(f, certain).value, 7);
  EXPECT_EQ(bounded_formula(f, certain).error, 0);
  const Bounded open[] = {{1.95, 0.1}, {2, 0.1}, {7, 0}};
  EXPECT_GE(bounded_formula(f, open).error, 5);
}

}  // namespace
}  // namespace lumen::run
