// Needs: none. What every operator means, on small numbers worked out by hand.
#include "graph/ir/eval.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "graph/ir/build.h"
#include "graph/ir/random.h"

namespace lumen::graph {
namespace {

const Element kF32{Scalar::f32, nullptr};
const Element kI32{Scalar::i32, nullptr};

Tensor tensor(Shape shape, std::vector<double> values, Element e = kF32) {
  return {{std::move(shape), e}, std::move(values), {}};
}

std::vector<double> one(const Graph& g, const std::map<std::string, Tensor>& inputs) {
  return eval(g, inputs)[0].values;
}

void finish(Graph& g, ValueId v) {
  g.results.push_back(v);
  g.result_names.push_back("");
}

TEST(Eval, MapBroadcastsToTheRight) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3}, kF32}), y = b.input("y", Role::data, {{3}, kF32});
  finish(g, b.add(x, y));
  EXPECT_EQ(one(g, {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}, {"y", tensor({3}, {10, 20, 30})}}),
            (std::vector<double>{11, 22, 33, 14, 25, 36}));
}

TEST(Eval, ContractSumsMissingLetters) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3}, kF32}), w = b.input("w", Role::parameter, {{2, 3}, kF32});
  finish(g, b.contract(x, w, "mk", "nk", "nm"));
  EXPECT_EQ(one(g, {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}, {"w", tensor({2, 3}, {1, 0, 0, 0, 1, 1})}}),
            (std::vector<double>{1, 4, 5, 11}));
}

TEST(Eval, ContractOfWholeNumbersWraps) {
  Graph g;
  Builder b(g);
  const Element i16{Scalar::i16, nullptr}, u8{Scalar::u8, nullptr};
  const ValueId x = b.input("x", Role::data, {{1, 2}, i16}), y = b.input("y", Role::data, {{1, 2}, i16});
  const ValueId z = b.input("z", Role::data, {{1, 2}, u8});
  g.results = {b.contract(x, y, "mk", "nk", "mn"), b.contract(x, z, "mk", "nk", "mn")};
  g.result_names = {"xy", "xz"};
  EXPECT_EQ(g[g.results[0]].type.element.scalar, Scalar::i32);
  const Tensor least{{{1, 2}, i16}, {-32768, -32768}, {}};
  const auto r = eval(g, {{"x", least}, {"y", least}, {"z", {{{1, 2}, u8}, {255, 1}, {}}}});
  EXPECT_EQ(r[0].values, (std::vector<double>{-2147483648.0}));
  EXPECT_EQ(r[1].values, (std::vector<double>{-8388608}));
}

TEST(Eval, ContractReducesLonelyLetters) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3}, kF32}), w = b.input("w", Role::parameter, {{2}, kF32});
  finish(g, b.contract(x, w, "mk", "m", "m"));
  EXPECT_EQ(one(g, {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}, {"w", tensor({2}, {1, 10})}}),
            (std::vector<double>{6, 150}));
}

TEST(Eval, ReduceKeepsAxes) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3}, kF32});
  finish(g, b.reduce(x, Reduction::max, {-1}));
  finish(g, b.reduce(x, Reduction::sum, {0}));
  const auto r = eval(g, {{"x", tensor({2, 3}, {1, 7, 3, 4, 5, 6})}});
  EXPECT_EQ(r[0].values, (std::vector<double>{7, 6}));
  EXPECT_EQ(r[0].type, (Type{{2, 1}, kF32}));
  EXPECT_EQ(r[1].values, (std::vector<double>{5, 12, 9}));
}

// As kernels do, wherever it stands.
TEST(Eval, ExtremesPassOverNaN) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 2}, kF32});
  finish(g, b.reduce(x, Reduction::max, {1}));
  finish(g, b.reduce(x, Reduction::min, {1}));
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  const auto r = eval(g, {{"x", tensor({3, 2}, {kNaN, -2, 3, kNaN, kNaN, kNaN})}});
  EXPECT_EQ(r[0].values, (std::vector<double>{-2, 3, -kInf}));
  EXPECT_EQ(r[1].values, (std::vector<double>{-2, 3, kInf}));
}

TEST(Eval, GatherAndScatterAdd) {
  Graph g;
  Builder b(g);
  const ValueId table = b.input("t", Role::parameter, {{3, 2}, kF32}), index = b.input("i", Role::data, {{2, 2}, kI32});
  const ValueId rows = b.gather(table, index);
  finish(g, rows);
  finish(g, b.scatter_add(rows, index, 3));
  const std::map<std::string, Tensor> in{{"t", tensor({3, 2}, {1, 2, 3, 4, 5, 6})},
                                         {"i", tensor({2, 2}, {2, 0, 2, 2}, kI32)}};
  const auto r = eval(g, in);
  EXPECT_EQ(r[0].values, (std::vector<double>{5, 6, 1, 2, 5, 6, 5, 6}));
  EXPECT_EQ(r[1].values, (std::vector<double>{1, 2, 0, 0, 15, 18}));
  auto bad = in;
  bad["i"].values[1] = 3;
  EXPECT_THROW(eval(g, bad), Error);
  bad["i"].values[1] = -1;
  EXPECT_THROW(eval(g, bad), Error);
}

TEST(Eval, Views) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3}, kF32});
  finish(g, b.permute(x, {1, 0}));
  finish(g, b.slice(x, {0, 0}, {2, 2}, {1, 2}));
  finish(g, b.pad(x, {2, 6}, {0, 1}, {1, 2}));
  finish(g, b.concat({x, x}, 0));
  finish(g, b.broadcast(b.reshape(x, {2, 1, 3}), {2, 2, 3}));
  const auto r = eval(g, {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(r[0].values, (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(r[1].values, (std::vector<double>{1, 3, 4, 6}));
  EXPECT_EQ(r[2].values, (std::vector<double>{0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6}));
  EXPECT_EQ(r[3].values, (std::vector<double>{1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(r[4].values, (std::vector<double>{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
}

TEST(Eval, UpdateWritesIntoTheState) {
  Graph g;
  Builder b(g);
  const ValueId s = b.input("s", Role::state, {{3, 2}, kF32}), at = b.input("at", Role::data, {{}, kI32});
  const ValueId row = b.constant({{1, 2}, kF32}, {8, 9});
  finish(g, b.update(s, row, {at, b.scalar(0, Scalar::i32)}));
  std::map<std::string, Tensor> states;
  std::map<std::string, Tensor> in{{"s", tensor({3, 2}, {1, 2, 3, 4, 5, 6})}, {"at", tensor({}, {1}, kI32)}};
  EXPECT_EQ(eval(g, in, {}, &states)[0].values, (std::vector<double>{1, 2, 8, 9, 5, 6}));
  EXPECT_EQ(states["s"].values, (std::vector<double>{1, 2, 8, 9, 5, 6}));
  in["at"].values[0] = 3;
  EXPECT_THROW(eval(g, in), Error);
}

TEST(Eval, SymbolsFollowFromInputs) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{Dim("B"), Dim("T")}, kF32});
  finish(g, b.reshape(x, {Dim("B") * Dim("T")}));
  const auto r = eval(g, {{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(r[0].type, (Type{{6}, kF32}));
  EXPECT_THROW(eval(g, {}), Error);
}

TEST(Eval, CallsHaveSeveralResults) {
  auto callee = std::make_shared<Graph>();
  callee->name = "both";
  Builder inner(*callee);
  const ValueId a = inner.input("a", Role::data, {{2}, kF32}), c = inner.input("c", Role::data, {{2}, kF32});
  finish(*callee, inner.add(a, c));
  finish(*callee, inner.sub(a, c));
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2}, kF32});
  const ValueId call = b.call(callee, {x, b.mul(x, x)});
  finish(g, b.result(call, 1));
  finish(g, b.result(call, 0));
  const auto r = eval(g, {{"x", tensor({2}, {2, 3})}});
  EXPECT_EQ(r[0].values, (std::vector<double>{-2, -6}));
  EXPECT_EQ(r[1].values, (std::vector<double>{6, 12}));
}

TEST(Eval, FloatsRoundPerOperatorUnlessWide) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{1}, kF32});
  finish(g, b.sub(b.add(x, b.scalar(1)), b.scalar(1)));
  const std::map<std::string, Tensor> in{{"x", tensor({1}, {1e-9})}};
  EXPECT_EQ(one(g, in)[0], 0);
  EvalOptions wide;
  wide.wide = true;
  EXPECT_NEAR(eval(g, in, wide)[0].values[0], 1e-9, 1e-15);
}

TEST(Random, FormulaEqualsFunction) {
  for (uint32_t salt : {0u, 1u, 77u, 0xffffffffu}) {
    const Formula f = random_formula(salt);
    verify_formula(f);
    for (uint32_t seed : {0u, 5u, 0x80000001u}) {
      for (uint32_t element : {0u, 1u, 2u, 1000003u, 0xffffffffu}) {
        const ScalarValue in[] = {{0, seed}, {0, element}};
        ScalarValue out;
        eval_formula(f, in, {&out, 1});
        EXPECT_EQ(static_cast<float>(out.real), uniform_random(seed, salt, element));
      }
    }
  }
}

TEST(Random, IsUniformAndUncorrelated) {
  const int n = 1 << 16;
  double mean = 0, square = 0, neighbours = 0, streams = 0;
  for (int k = 0; k < n; ++k) {
    const double x = uniform_random(1, 2, k) - 0.5;
    ASSERT_GE(x, -0.5);
    ASSERT_LT(x, 0.5);
    mean += x / n;
    square += x * x / n;
    neighbours += x * (uniform_random(1, 2, k + 1) - 0.5) / n;
    streams += x * (uniform_random(2, 2, k) - 0.5) / n;
  }
  EXPECT_NEAR(mean, 0, 0.005);  // 4 standard errors: 4 * 0.289 / 256
  EXPECT_NEAR(square, 1.0 / 12, 0.002);
  EXPECT_NEAR(neighbours, 0, 0.0014);  // 4 / 12 / 256
  EXPECT_NEAR(streams, 0, 0.0014);
}

}  // namespace
}  // namespace lumen::graph
