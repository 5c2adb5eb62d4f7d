// Needs: nothing. The transcendental expansions against the C library in wider arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "kernel/loop/build.h"
#include "kernel/loop/eval/eval.h"
#include "kernel/loop/expand.h"
#include "kernel/loop/text.h"
#include "kernel/loop/verify.h"

namespace lumen::loop {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double run(ScalarOp op, Scalar s, double a, double b = 0) {
  const Formula& f = expansion(op, s);
  std::vector<ScalarValue> in(f.inputs.size()), out(1);
  in[0].real = a;
  if (in.size() > 1) in[1].real = b;
  eval_formula(f, in, out);
  return out[0].real;
}

// Distance in units of the last place of the exact result, subnormals included.
double ulps(Scalar s, double got, long double exact) {
  if (std::isnan(got) && std::isnan(exact)) return 0;
  if (static_cast<long double>(got) == exact) return 0;
  const int mantissa = s == Scalar::f64 ? 52 : 23, least = s == Scalar::f64 ? -1022 : -126;
  const int e = std::max(exact == 0 ? least : std::ilogb(exact), least);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / std::ldexp(1.0L, e - mantissa));
}

double worst(ScalarOp op, Scalar s, double low, double high, const std::function<long double(long double)>& exact) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(low, high);
  double most = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = round_to_scalar(s, uniform(random));
    most = std::max(most, ulps(s, run(op, s, x), exact(static_cast<long double>(x))));
  }
  return most;
}

const auto lexp = [](long double x) { return std::exp(x); };
const auto llog = [](long double x) { return std::log(x); };
const auto lsin = [](long double x) { return std::sin(x); };
const auto lcos = [](long double x) { return std::cos(x); };
const auto ltanh = [](long double x) { return std::tanh(x); };

TEST(LoopExpand, ExpAndLogStayBelowTwoUlp) {
  for (const Scalar s : {Scalar::f32, Scalar::f64}) {
    EXPECT_LT(worst(ScalarOp::exp_, s, -1, 1, lexp), 2);
    EXPECT_LT(worst(ScalarOp::exp_, s, -103, 88, lexp), 2);
    EXPECT_LT(worst(ScalarOp::log_, s, 0, 3, llog), 2);
    EXPECT_LT(worst(ScalarOp::log_, s, 0.99, 1.01, llog), 2);
    EXPECT_LT(worst(ScalarOp::log_, s, 0, 3e38, llog), 2);
    EXPECT_LT(worst(ScalarOp::log_, s, 0, 1e-38, llog), 2);
  }
  EXPECT_LT(worst(ScalarOp::exp_, Scalar::f64, -740, 709, lexp), 2);
}

TEST(LoopExpand, SinCosTanh) {
  for (const double range : {1.0, 100.0, 1e5, 1e9}) {
    EXPECT_LT(worst(ScalarOp::sin_, Scalar::f32, -range, range, lsin), 1) << range;
    EXPECT_LT(worst(ScalarOp::cos_, Scalar::f32, -range, range, lcos), 1) << range;
  }
  EXPECT_LT(worst(ScalarOp::sin_, Scalar::f64, -100, 100, lsin), 2);
  EXPECT_LT(worst(ScalarOp::cos_, Scalar::f64, -100, 100, lcos), 2);
  for (const Scalar s : {Scalar::f32, Scalar::f64}) {
    EXPECT_LT(worst(ScalarOp::tanh_, s, -0.7, 0.7, ltanh), 3);
    EXPECT_LT(worst(ScalarOp::tanh_, s, -20, 20, ltanh), 3);
  }
}

TEST(LoopExpand, Pow) {
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> base(0, 50), power(-20, 20);
  for (int i = 0; i < 20000; ++i) {
    const double a = static_cast<float>(base(random)), b = static_cast<float>(power(random));
    const long double exact = std::pow(static_cast<long double>(a), static_cast<long double>(b));
    if (exact > 3e38L || exact < 1e-37L) continue;
    ASSERT_LT(ulps(Scalar::f32, run(ScalarOp::pow_, Scalar::f32, a, b), exact), 0.6) << a << " " << b;
  }
  EXPECT_EQ(run(ScalarOp::pow_, Scalar::f32, 0, 2), 0);
  EXPECT_EQ(run(ScalarOp::pow_, Scalar::f32, 0, 0), 1);
  EXPECT_EQ(run(ScalarOp::pow_, Scalar::f32, 0, -1), kInf);
  EXPECT_EQ(run(ScalarOp::pow_, Scalar::f32, 1, kInf), 1);
}

TEST(LoopExpand, Edges) {
  for (const Scalar s : {Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64}) {
    EXPECT_EQ(run(ScalarOp::exp_, s, 0), 1);
    EXPECT_EQ(run(ScalarOp::exp_, s, kInf), kInf);
    EXPECT_EQ(run(ScalarOp::exp_, s, -kInf), 0);
    EXPECT_TRUE(std::isnan(run(ScalarOp::exp_, s, NAN)));
    EXPECT_EQ(run(ScalarOp::log_, s, 1), 0);
    EXPECT_EQ(run(ScalarOp::log_, s, 0), -kInf);
    EXPECT_EQ(run(ScalarOp::log_, s, kInf), kInf);
    EXPECT_TRUE(std::isnan(run(ScalarOp::log_, s, -1)));
    EXPECT_TRUE(std::isnan(run(ScalarOp::log_, s, NAN)));
    EXPECT_EQ(run(ScalarOp::tanh_, s, kInf), 1);
    EXPECT_EQ(run(ScalarOp::tanh_, s, -kInf), -1);
    EXPECT_TRUE(std::isnan(run(ScalarOp::tanh_, s, NAN)));
    EXPECT_TRUE(std::isnan(run(ScalarOp::sin_, s, kInf)));
    EXPECT_EQ(run(ScalarOp::cos_, s, 0), 1);
  }
  EXPECT_EQ(run(ScalarOp::exp_, Scalar::f32, 89), kInf);
  EXPECT_GT(run(ScalarOp::exp_, Scalar::f32, -103), 0);  // subnormal
  EXPECT_EQ(run(ScalarOp::exp_, Scalar::f32, -105), 0);
}

TEST(LoopExpand, KernelsStayValidAndKeepTheirMeaning) {
  Builder b("e");
  const BufferId x = b.param("x", 16, false), y = b.param("y", 16, true);
  b.loop(LoopKind::parallel, b.i64(0), b.i64(1), 1, [&](Expr at) {
    const Expr v = b.load(x, {Scalar::f32, 4}, at);
    b.store(y, exp(v) + b.op(ScalarOp::pow_, v, v), at);
  });
  const Kernel k = b.finish();
  const Kernel wide = expand(k);
  EXPECT_EQ(verify(wide), "");
  EXPECT_EQ(print(wide).find(" exp "), std::string::npos);
  EXPECT_EQ(print(wide).find(" pow "), std::string::npos);
  float in[4] = {0.5F, 1, 2, 3}, out[4];
  const std::span<uint8_t> buffers[] = {{reinterpret_cast<uint8_t*>(in), 16}, {reinterpret_cast<uint8_t*>(out), 16}};
  eval(wide, buffers, nullptr);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(out[i], std::exp(in[i]) + std::pow(in[i], in[i]), 1e-5F * out[i]);
}

}  // namespace
}  // namespace lumen::loop
