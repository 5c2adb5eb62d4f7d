// Needs none. Meaning, text, rewriting and derivatives of scalar formulas, mostly on random ones.
#include "number/formula/formula.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "number/gradient/gradient.h"

namespace lumen {
namespace {

using Op = ScalarOp;

ScalarValue run(Op op, Scalar type, ScalarValue a, ScalarValue b = {}, ScalarValue c = {}) {
  return eval_scalar_op(ScalarNode{op, type}, type, a, b, c);
}
double run_f32(Op op, double a, double b = 0, double c = 0) {
  return run(op, Scalar::f32, {a, 0}, {b, 0}, {c, 0}).real;
}
int64_t run_i32(Op op, int64_t a, int64_t b = 0) {
  return run(op, Scalar::i32, {0, a}, {0, b}).integer;
}

TEST(FormulaEval, IntegersWrapAndFloorDivide) {
  EXPECT_EQ(run_i32(Op::add_, INT32_MAX, 1), INT32_MIN);
  EXPECT_EQ(run_i32(Op::div_, -7, 2), -4);
  EXPECT_EQ(run_i32(Op::rem_, -7, 2), 1);
  EXPECT_EQ(run_i32(Op::div_, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(run_i32(Op::shl_, 1, 32), 0);
  EXPECT_EQ(run_i32(Op::shr_, -1, 40), -1);
  EXPECT_EQ(run(Op::mulhi_, Scalar::u32, {0, 0xffffffff}, {0, 0xffffffff}).integer, 0xfffffffe);
  EXPECT_EQ(static_cast<uint64_t>(run(Op::mulhi_, Scalar::u64, {0, -1}, {0, -1}).integer), ~uint64_t{0} - 1);
  for (const int64_t a : {int64_t{7}, int64_t{-7}, int64_t{0}, int64_t{INT32_MIN}}) {
    EXPECT_EQ(run_i32(Op::div_, a, 0), 0);
    EXPECT_EQ(run_i32(Op::rem_, a, 0), 0);
  }
  EXPECT_EQ(run_i32(Op::rem_, INT32_MIN, -1), 0);
  EXPECT_EQ(run(Op::div_, Scalar::i64, {0, INT64_MIN}, {0, -1}).integer, INT64_MIN);
  EXPECT_EQ(run(Op::rem_, Scalar::u64, {0, -1}, {0, 0}).integer, 0);
}

TEST(FormulaEval, FloatsRoundAndFollowTheTable) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(run_f32(Op::add_, 16777216, 1), 16777216);
  EXPECT_EQ(run_f32(Op::rint_, 2.5), 2);
  EXPECT_EQ(run_f32(Op::round_, 2.5), 3);
  EXPECT_EQ(run_f32(Op::round_, -2.5), -3);
  EXPECT_EQ(run_f32(Op::min_, nan, 1), 1);
  EXPECT_TRUE(std::isnan(run_f32(Op::min_, 1, nan)));
  EXPECT_TRUE(std::isnan(run_f32(Op::max_, 1, nan)));
  const double a = 1 + 0x1p-23;
  EXPECT_EQ(run_f32(Op::fma_, a, a, -1), static_cast<float>(0x1p-22 + 0x1p-46));
}

TEST(FormulaEval, Conversions) {
  const ScalarNode to_i8{Op::cast_, Scalar::i8};
  EXPECT_EQ(eval_scalar_op(to_i8, Scalar::f32, {300.7, 0}, {}, {}).integer, 127);
  EXPECT_EQ(eval_scalar_op(to_i8, Scalar::f32, {-129, 0}, {}, {}).integer, -128);
  EXPECT_EQ(eval_scalar_op(to_i8, Scalar::i32, {0, 200}, {}, {}).integer, -56);
  const ScalarNode to_half{Op::cast_, Scalar::f16};
  EXPECT_EQ(eval_scalar_op(to_half, Scalar::f64, {1 + 0x1p-11 + 0x1p-40, 0}, {}, {}).real, 1 + 0x1p-10);
  const ScalarNode bits{Op::bitcast_, Scalar::i32};
  EXPECT_EQ(eval_scalar_op(bits, Scalar::f32, {-0.0, 0}, {}, {}).integer, INT32_MIN);
  const ScalarNode exponent{Op::exponent_, Scalar::i32};
  EXPECT_EQ(eval_scalar_op(exponent, Scalar::f32, {0x1.8p-149, 0}, {}, {}).integer, -149);
  EXPECT_EQ(eval_scalar_op(exponent, Scalar::f32, {-12, 0}, {}, {}).integer, 3);
  EXPECT_EQ(eval_scalar_op(exponent, Scalar::f32, {0, 0}, {}, {}).integer, -1023);
}

TEST(FormulaBuild, EqualNodesAreSharedAndConstantsFold) {
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32};
  const int x = f.input(0), y = f.input(1);
  EXPECT_EQ(f.op(Op::mul_, x, y), f.op(Op::mul_, y, x));
  EXPECT_NE(f.constant(Scalar::f32, 0.0), f.constant(Scalar::f32, -0.0));
  const int three = f.op(Op::add_, f.constant(Scalar::f32, 1), f.constant(Scalar::f32, 2));
  EXPECT_EQ(f.nodes[static_cast<size_t>(three)].op, Op::constant);
  EXPECT_EQ(f.nodes[static_cast<size_t>(three)].real, 3);
  const int zero = f.integer(Scalar::i32, 0);
  EXPECT_EQ(f.op(Op::div_, f.integer(Scalar::i32, 5), zero), zero);
  EXPECT_DEATH(f.op(Op::add_, x, zero), "add of");
}

// Random formulas over f32, i32 and truth values.
Formula random_formula(bool smooth) {
  Formula f;
  f.inputs = {Scalar::f32, Scalar::f32, Scalar::i32};
  std::vector<int> floats = {f.input(0), f.input(1), f.constant(Scalar::f32, *rc::gen::inRange(-3, 4) / 2.0)};
  std::vector<int> whole = {f.input(2), f.integer(Scalar::i32, *rc::gen::inRange(-4, 5))};
  std::vector<int> truth = {f.op(Op::lt_, floats[0], floats[1])};
  const std::vector<Op> smooth_ops = {Op::add_, Op::sub_, Op::mul_, Op::sin_, Op::cos_, Op::tanh_, Op::neg_};
  const std::vector<Op> float_ops = {Op::add_, Op::sub_,  Op::mul_,   Op::div_,  Op::neg_,   Op::abs_, Op::min_,
                                     Op::max_, Op::rint_, Op::floor_, Op::sqrt_, Op::round_, Op::fma_};
  const std::vector<Op> whole_ops = {Op::add_, Op::sub_, Op::mul_, Op::and_, Op::or_, Op::xor_,
                                     Op::shl_, Op::shr_, Op::not_, Op::min_, Op::neg_};
  const int steps = *rc::gen::inRange(1, 20);
  for (int s = 0; s < steps; ++s) {
    auto pick = [](const std::vector<int>& from) { return *rc::gen::elementOf(from); };
    const int kind = smooth ? 0 : *rc::gen::inRange(0, 6);
    if (kind <= 2) {
      const Op op = *rc::gen::elementOf(smooth ? smooth_ops : float_ops);
      const int arity = scalar_op_info(op).arity;
      const int a = pick(floats), b = pick(floats), c = pick(floats);
      floats.push_back(f.op(op, a, arity > 1 ? b : -1, arity > 2 ? c : -1));
    } else if (kind == 3) {
      const Op op = *rc::gen::elementOf(whole_ops);
      const int a = pick(whole), b = pick(whole);
      whole.push_back(f.op(op, a, scalar_op_info(op).arity > 1 ? b : -1));
    } else if (kind == 4) {
      truth.push_back(f.op(Op::le_, pick(floats), pick(floats)));
      truth.push_back(f.op(Op::not_, pick(truth)));
    } else {
      floats.push_back(f.op(Op::select_, pick(truth), pick(floats), pick(floats)));
      floats.push_back(f.convert(Op::cast_, Scalar::f32, pick(whole)));
    }
  }
  f.outputs = {floats.back(), whole.back()};
  return f;
}

std::vector<ScalarValue> evaluate(const Formula& f, double x, double y, int64_t n, bool wide = false) {
  const std::vector<ScalarValue> inputs = {{x, 0}, {y, 0}, {0, n}};
  std::vector<ScalarValue> outputs(f.outputs.size());
  eval_formula(f, inputs, outputs, wide);
  return outputs;
}

bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

RC_GTEST_PROP(FormulaText, ParseUndoesPrint, ()) {
  const Formula f = random_formula(false);
  verify_formula(f);
  const std::string text = print_formula(f);
  RC_ASSERT(text.find('\n') == std::string::npos);
  size_t position = 3;
  const Formula back = parse_formula(std::make_shared<Source>(Source{"test", "...  " + text + " rest"}), &position);
  RC_LOG() << text << "\n" << print_formula(back);
  RC_ASSERT(back == f);
  RC_ASSERT(position == text.size() + 5);
}

RC_GTEST_PROP(FormulaRewrite, SimplifyKeepsEveryBit, ()) {
  const Formula f = random_formula(false);
  const Formula g = simplify_formula(f);
  verify_formula(g);
  RC_ASSERT(g.nodes.size() <= f.nodes.size() + 2);
  const std::vector<double> points = {0.0, -0.0, 1.0, -1.5, 3e38, 1e-40, std::numeric_limits<double>::infinity()};
  for (double x : points) {
    for (double y : points) {
      const auto fx = static_cast<double>(static_cast<float>(x)), fy = static_cast<double>(static_cast<float>(y));
      const auto a = evaluate(f, fx, fy, 7), b = evaluate(g, fx, fy, 7);
      RC_ASSERT(same_bits(a[0].real, b[0].real));
      RC_ASSERT(a[1].integer == b[1].integer);
    }
  }
}

// To a wider type and back is no way at all; to a narrower one it is.
TEST(FormulaRewrite, WideningAndBackIsNothing) {
  const auto there_and_back = [](Scalar from, Scalar over) {
    Formula f;
    f.inputs = {from};
    f.outputs = {f.convert(ScalarOp::cast_, from, f.convert(ScalarOp::cast_, over, f.input(0)))};
    const Formula g = simplify_formula(f);
    return g.nodes[static_cast<size_t>(g.outputs[0])].op == ScalarOp::input;
  };
  EXPECT_TRUE(there_and_back(Scalar::bf16, Scalar::f32));
  EXPECT_TRUE(there_and_back(Scalar::f16, Scalar::f32));
  EXPECT_TRUE(there_and_back(Scalar::f32, Scalar::f64));
  EXPECT_TRUE(there_and_back(Scalar::i8, Scalar::i32));
  EXPECT_FALSE(there_and_back(Scalar::f32, Scalar::bf16));
  EXPECT_FALSE(there_and_back(Scalar::f16, Scalar::bf16));
  EXPECT_FALSE(there_and_back(Scalar::i32, Scalar::i8));
  EXPECT_FALSE(there_and_back(Scalar::i8, Scalar::u8));
  EXPECT_FALSE(there_and_back(Scalar::i32, Scalar::f32));
}

RC_GTEST_PROP(FormulaDerivative, AgreesWithFiniteDifferences, ()) {
  Formula f = random_formula(true);
  f.outputs.resize(1);
  const double x = *rc::gen::inRange(-100, 100) / 83.0, y = *rc::gen::inRange(-100, 100) / 71.0;
  const double h = 1e-5;
  for (int slot = 0; slot < 2; ++slot) {
    const Formula d = derivative(f, 0, slot);
    verify_formula(d);
    const double dx = slot == 0 ? h : 0, dy = slot == 1 ? h : 0;
    const double up = evaluate(f, x + dx, y + dy, 1, true)[0].real;
    const double down = evaluate(f, x - dx, y - dy, 1, true)[0].real;
    const double expected = (up - down) / (2 * h);
    const double got = evaluate(d, x, y, 1, true)[0].real;
    const double scale = std::max({1.0, std::fabs(expected), std::fabs(up) * 10});
    RC_PRE(scale < 1e4);
    RC_ASSERT(std::fabs(got - expected) < 1e-4 * scale);
  }
}

TEST(FormulaDerivative, EveryFloatRule) {
  for (Op op : {Op::add_, Op::sub_, Op::mul_, Op::div_, Op::neg_, Op::abs_, Op::min_, Op::max_, Op::sqrt_, Op::exp_,
                Op::log_, Op::sin_, Op::cos_, Op::tanh_, Op::pow_, Op::fma_}) {
    Formula f;
    f.inputs = {Scalar::f64, Scalar::f64, Scalar::f64};
    const int arity = scalar_op_info(op).arity;
    const int x = f.input(0), y = arity > 1 ? f.input(1) : -1, z = arity > 2 ? f.input(2) : -1;
    f.outputs = {f.op(op, x, y, z)};
    const double at[3] = {0.7, 1.3, -0.4};
    for (int slot = 0; slot < arity; ++slot) {
      auto value = [&](const Formula& g, double h) {
        std::vector<ScalarValue> in = {{at[0], 0}, {at[1], 0}, {at[2], 0}}, out(1);
        in[static_cast<size_t>(slot)].real += h;
        eval_formula(g, in, out);
        return out[0].real;
      };
      const double expected = (value(f, 1e-6) - value(f, -1e-6)) / 2e-6;
      EXPECT_NEAR(value(derivative(f, 0, slot), 0), expected, 1e-7) << scalar_op_info(op).name << " slot " << slot;
    }
  }
}

TEST(FormulaDerivative, StraightThroughSeesThroughRounding) {
  Formula f;  // clamp(int(rint(x / s)), -8, 7) * s
  f.inputs = {Scalar::f32, Scalar::f32};
  const int x = f.input(0), s = f.input(1);
  const int q = f.convert(Op::cast_, Scalar::i32, f.op(Op::rint_, f.op(Op::div_, x, s)));
  const int low = f.op(Op::max_, q, f.integer(Scalar::i32, -8));
  const int code = f.op(Op::min_, low, f.integer(Scalar::i32, 7));
  f.outputs = {f.op(Op::mul_, f.convert(Op::cast_, Scalar::f32, code), s)};
  auto value = [&](const Formula& g, double vx, double vs) {
    const std::vector<ScalarValue> in = {{vx, 0}, {vs, 0}};
    std::vector<ScalarValue> out(1);
    eval_formula(g, in, out);
    return out[0].real;
  };
  EXPECT_EQ(value(derivative(f, 0, 0), 1.3, 0.5), 0);
  const Formula dx = straight_through_derivative(f, 0, 0), ds = straight_through_derivative(f, 0, 1);
  verify_formula(dx);
  verify_formula(ds);
  EXPECT_EQ(value(dx, 1.3, 0.5), 1);
  EXPECT_EQ(value(dx, 30, 0.5), 0);
  EXPECT_EQ(value(ds, 30, 0.5), 7);                       // clipped: the bound
  EXPECT_NEAR(value(ds, 1.3, 0.5), 3 - 1.3 / 0.5, 1e-6);  // inside: q - x / s
}

TEST(FormulaText, MistakesHavePlaces) {
  auto parse = [](std::string text) {
    size_t position = 0;
    return parse_formula(std::make_shared<Source>(Source{"f", std::move(text)}), &position);
  };
  for (const char* bad : {"", "(", "() {", "(%0: f32) { %2 = neg f32 %0 } -> %2", "(%0: f32) { %1 = neg f32 %1 } -> %1",
                          "(%0: f32) { %1 = bad f32 %0 } -> %1", "(%0: f32) { %1 = neg i32 %0 } -> %1",
                          "(%0: f32) {} -> %9", "(%0: f32) { %1 = const i8 300 } -> %1",
                          "(%0: f32) { %1 = and f32 %0, %0 } -> %1", "(%99999999999999999999: f32) {} -> %0"}) {
    EXPECT_THROW(parse(bad), Error) << bad;
  }
  EXPECT_EQ(parse("(%0: f32) {} -> %0").outputs.size(), 1u);
}

TEST(FormulaRewrite, ComposeSubstitutes) {
  Formula outer, inner;
  outer.inputs = {Scalar::f32, Scalar::f32};
  outer.outputs = {outer.op(Op::sub_, outer.input(0), outer.input(1))};
  inner.inputs = {Scalar::f32};
  inner.outputs = {inner.op(Op::mul_, inner.input(0), inner.constant(Scalar::f32, 3))};
  const Formula both = compose(outer, 0, inner, 0);  // inputs: outer's second, inner's first
  const std::vector<ScalarValue> in = {{5, 0}, {7, 0}};
  std::vector<ScalarValue> out(1);
  eval_formula(both, in, out);
  EXPECT_EQ(out[0].real, 16);
}

}  // namespace
}  // namespace lumen
