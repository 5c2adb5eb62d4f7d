// needs: none. Products whose rows pick matrices: what they mean, what is refused, how the language says them, what
// passes make of them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "blocks.h"
#include "graph/elaborate/elaborate.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

Tensor tensor(const Shape& shape, std::vector<double> values, Scalar s = Scalar::f32) {
  return {{shape, {s, nullptr}}, std::move(values), {}};
}

int count(const Graph& g, Op op) {
  return static_cast<int>(std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.op == op; }));
}

TEST(Picked, RowsMeetTheMatricesTheyPick) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 2}, kFloat}), w = b.input("w", Role::parameter, {{3, 1, 2}, kFloat});
  const ValueId picks = b.input("p", Role::data, {{2, 2}, kInt});
  const ValueId y = b.contract_gather(x, w, picks, "nk", "efk", "nj");
  EXPECT_EQ(print(b.type(y)), "tensor<2x2x1xf32>");
  g.results = {y, b.contract_scatter(y, x, picks, "njf", "nk", "nj", "efk", 3)};
  g.result_names = {"y", "s"};
  std::map<std::string, Tensor> in{{"x", tensor({2, 2}, {1, 2, 3, 4})},
                                   {"w", tensor({3, 1, 2}, {1, 0, 0, 1, 10, 1})},
                                   {"p", tensor({2, 2}, {2, 0, 1, 2}, Scalar::i32)}};
  const auto r = eval(g, in);
  EXPECT_EQ(r[0].values, (std::vector<double>{12, 1, 4, 34}));
  // Of matrix 0: y[0,1] x[0]; of 1: y[1,0] x[1]; of 2: y[0,0] x[0] + y[1,1] x[1].
  EXPECT_EQ(r[1].values, (std::vector<double>{1, 2, 12, 16, 12 + 102, 24 + 136}));
  in["p"].values[1] = 3;
  EXPECT_THROW(eval(g, in), Error);
  // What picks nothing gives zeros, and adds to no matrix.
  in["p"].values[1] = -1;
  const auto some = eval(g, in);
  EXPECT_EQ(some[0].values, (std::vector<double>{12, 0, 4, 34}));
  EXPECT_EQ(some[1].values, (std::vector<double>{0, 0, 12, 16, 12 + 102, 24 + 136}));
}

TEST(Picked, WrongLettersAreRefused) {
  const std::vector<std::array<std::string, 5>> cases = {
      {"contract_gather", "nk", "nfk", "nj", "njf"},  {"contract_gather", "nk", "ejk", "nj", "nj"},
      {"contract_gather", "nq", "efk", "nj", "njfk"}, {"contract_gather", "nk", "efk", "nj", "nfj"},
      {"contract_gather", "nk", "efk", "n", "nf"},    {"contract_scatter", "nk", "nk", "nj", "ek"},
      {"contract_scatter", "nk", "nf", "nj", "efk"},  {"contract_scatter", "nk", "jf", "nj", "nfk"},
      {"contract_scatter", "nk", "jf", "nj", "ek"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c[0] + " " + c[1] + "," + c[2] + "," + c[3] + "->" + c[4]);
    Graph g;
    Builder b(g);
    const bool gather = c[0] == "contract_gather";
    const ValueId x = b.input("x", Role::data, {{2, 3}, kFloat});
    const ValueId w = b.input("w", Role::data, {gather ? Shape{4, 5, 3} : Shape{2, 3}, kFloat});
    const ValueId p = b.input("p", Role::data, {{2, 2}, kInt});
    Node n{gather ? Op::contract_gather_ : Op::contract_scatter_, {{4, 5, 3}, kFloat}, {x, w, p}, {}, {}};
    n.attributes.indices = {c[1], c[2], c[3], c[4]};
    Type type;
    EXPECT_NE(infer_type(g, n, &type), "");
  }
}

Graph function(const std::string& text) {
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  Scope scope;
  scope.files = {&file};
  check_file(scope, file);
  Graph g = elaborate_function(scope, file.functions.back());
  EXPECT_EQ(verify(g), "");
  return g;
}

TEST(Picked, IndexNotationSaysIt) {
  const char* body[] = {"sum(k) x[n, k] * w[picks[n, j], f, k]", "sum(k) w[picks[n, j], f, k] * x[n, k]"};
  for (const char* text : body) {
    const Graph g = function(
        "fn f(x: f32[N, K], w: f32[E, F, K], picks: i32[N, J]) -> f32[N, J, F] {\n  y[n, j, f] = " + std::string(text) +
        "\n  return y\n}\n");
    EXPECT_EQ(count(g, Op::contract_gather_), 1) << print(g);
    EXPECT_EQ(count(g, Op::gather_), 0) << print(g);
  }
  // In another order of axes, and an integer computed of another.
  const Graph turned = function(
      "fn f(x: f32[K, N], w: f32[E, F, K], p: i32[N]) -> f32[F, N]\n  y[f, n] = sum(k) x[k, n] * w[p[n] / 2, f, k]\n");
  const auto at = std::find_if(turned.nodes.begin(), turned.nodes.end(),
                               [](const Node& n) { return n.op == Op::contract_gather_; });
  ASSERT_NE(at, turned.nodes.end()) << print(turned);
  std::map<std::string, Tensor> in{{"x", tensor({2, 3}, {1, 2, 3, 4, 5, 6})},
                                   {"w", tensor({2, 1, 2}, {1, 0, 0, 1})},
                                   {"p", tensor({3}, {0, 3, 1}, Scalar::i32)}};
  EXPECT_EQ(eval(turned, in)[0].values, (std::vector<double>{1, 5, 3}));
}

TEST(Picked, WhatIsNoMatrixForARowStaysAGather) {
  for (const char* text :
       {"fn f(x: f32[N, K], w: f32[E, K], p: i32[N]) -> f32[N]\n  y[n] = sum(k) x[n, k] * w[p[n], k]\n",
        "fn f(x: f32[M, K], w: f32[E, F, K], p: i32[N]) -> f32[M, N, F]\n  y[m, n, f] = sum(k) x[m, k] * w[p[n], f, "
        "k]\n",
        "fn f(x: f32[N, K], w: f32[E, F, K], p: i32[N]) -> f32[F]\n  y[f] = sum(n, k) x[n, k] * w[p[n], f, k]\n"}) {
    const Graph g = function(text);
    EXPECT_EQ(count(g, Op::contract_gather_), 0) << print(g);
    EXPECT_EQ(count(g, Op::gather_), 1) << print(g);
  }
}

// Two layers of experts and their gradients, by the evaluator and group by group.
Graph experts(bool gradients) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{6, 4}, kFloat}), p = b.input("p", Role::data, {{6, 2}, kInt});
  const ValueId up = b.input("up", Role::parameter, {{3, 8, 4}, kFloat}),
                down = b.input("down", Role::parameter, {{3, 4, 8}, kFloat});
  const ValueId h = b.unary(ScalarOp::tanh_, b.contract_gather(x, up, p, "nk", "efk", "nj"));
  const ValueId parts = b.contract_gather(h, down, p, "njf", "edf", "nj");
  const ValueId y = b.reduce(parts, Reduction::sum, {1});
  g.results = {y};
  g.result_names = {"y"};
  if (!gradients) return g;
  const ValueId loss = b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1, 2}), {});
  g.results = {loss};
  for (const ValueId d : differentiate(g, loss, {x, up, down})) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  return g;
}

TEST(Picked, PlansComputeTheSame) {
  for (const bool gradients : {false, true}) {
    const Graph g = experts(gradients);
    const Pipeline p = run_pipeline(g, {}, {});
    const auto in = random_inputs(g, 3, 3);
    const auto want = eval(g, in);
    const PlanRun run = run_plan(p.plan, p.memory, in);
    ASSERT_EQ(run.wrong, "") << print(p.plan.graph);
    for (size_t r = 0; r < want.size(); ++r) EXPECT_EQ(run.results[r].values, want[r].values);
    int dots = 0, moves = 0;
    for (const Group& group : p.plan.groups) {
      dots += group.shape == KernelShape::dot;
      moves += group.shape == KernelShape::move;
    }
    EXPECT_EQ(dots, gradients ? 6 : 2);
    EXPECT_EQ(moves, 0) << "no matrix is copied";
  }
}

TEST(Picked, ProductsAreRoundedLikeOthers) {
  Graph g = experts(true);
  round_products(g, Scalar::bf16);
  ASSERT_EQ(verify(g), "");
  for (const Node& n : g.nodes)
    if (n.op == Op::contract_gather_ || n.op == Op::contract_scatter_) {
      EXPECT_EQ(g[n.operands[0]].type.element.scalar, Scalar::bf16);
      EXPECT_EQ(g[n.operands[1]].type.element.scalar, Scalar::bf16);
      EXPECT_EQ(n.type.element.scalar, Scalar::f32);
    }
}

TEST(Picked, TurnedRowsBecomeLetters) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 6}, kFloat}), p = b.input("p", Role::data, {{6, 2}, kInt});
  const ValueId w = b.input("w", Role::parameter, {{3, 8, 4}, kFloat});
  g.results = {b.contract_gather(b.permute(x, {1, 0}), w, p, "nk", "efk", "nj")};
  g.result_names = {"y"};
  const auto in = random_inputs(g, 3, 3);
  const auto want = eval(g, in);
  simplify(g);
  EXPECT_EQ(count(g, Op::permute_), 0) << print(g);
  EXPECT_EQ(eval(g, in)[0].values, want[0].values);
}

}  // namespace
}  // namespace lumen::graph
