// Needs: none. Mixed precision: which products are rounded, how often, and what their numbers are.
#include <gtest/gtest.h>

#include <cmath>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "number/formula/scalar.h"
#include "number/library/library.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

// Two products with one input, their meeting over a batch letter, and the gradient of a sum.
Graph network() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 4, 16}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{8, 16}, kFloat}),
                u = b.input("u", Role::parameter, {{8, 16}, kFloat});
  const ValueId rows = b.reshape(x, {8, 16});
  const ValueId p = b.contract(rows, w, "mk", "nk", "mn"), q = b.contract(rows, u, "mk", "nk", "mn");
  const ValueId scores = b.contract(b.reshape(p, {2, 4, 8}), b.reshape(q, {2, 4, 8}), "bmk", "bnk", "bmn");
  g.results = {scores};
  g.result_names = {"scores"};
  return g;
}

double as_16bit_float(double x) {
  return bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
}

TEST(RoundProducts, RoundsEachOperandOnceBelowItsViews) {
  Graph g = network();
  round_products(g, Scalar::bf16);
  ASSERT_EQ(verify(g), "");
  int rounded = 0, products = 0;
  for (const Node& node : g.nodes) {
    if (node.op == Op::map_ && node.type.element.scalar == Scalar::bf16) {
      ++rounded;
      EXPECT_EQ(g[node.operands[0]].op, Op::input_) << "the input itself is rounded, not a view of it";
    }
    if (node.op != Op::contract_) continue;
    EXPECT_EQ(node.type.element.scalar, Scalar::f32);
    products += g[node.operands[0]].type.element.scalar == Scalar::bf16;
  }
  EXPECT_EQ(rounded, 3) << print(g);  // x, w, u
  EXPECT_EQ(products, 2) << "the product over a batch stays";
}

// A low-rank change beside a product: the first of the two goes through memory, and is short there; their sum, which
// two maps read, is short as well.
TEST(RoundProducts, SumsOfProducts) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{64, 32}, {}}), w = b.input("w", Role::parameter, {{48, 32}, {}}),
                down = b.input("a", Role::parameter, {{16, 32}, {}}),
                up = b.input("b", Role::parameter, {{48, 16}, {}});
  const ValueId base = b.contract(x, w, "mk", "nk", "mn");
  const ValueId change = b.contract(b.contract(x, down, "mk", "rk", "mr"), up, "mr", "nr", "mn");
  const ValueId y = b.add(base, change);
  g.results = {b.unary(ScalarOp::tanh_, y), b.unary(ScalarOp::exp_, y)};
  g.result_names = {"t", "e"};
  round_products(g, Scalar::bf16);
  simplify(g);
  ASSERT_EQ(verify(g), "");
  int sums = 0;
  for (const Node& node : g.nodes) {
    if (node.op != Op::map_ || node.operands.size() != 2) continue;
    ++sums;
    int kept_short = 0;
    for (const ValueId o : node.operands) kept_short += g[o].type.element.scalar == Scalar::bf16;
    EXPECT_EQ(kept_short, 1) << print(g);
  }
  EXPECT_EQ(sums, 1) << print(g);
  const Plan plan = fuse(g);
  for (const Group& group : plan.groups)
    for (const ValueId v : group.results)
      if (plan.graph[v].type.shape == Shape{64, 48} && group.shape == KernelShape::dot) {
        EXPECT_EQ(plan.graph[v].type.element.scalar, Scalar::bf16) << print(plan.graph);
      }
}

// y = x (w + b a): the sum of parameters is made as it is, and then rounded as any parameter.
TEST(RoundProducts, WhatParametersMakeAloneIsAParameter) {
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, {{4, 8}, {}}), w = build.input("w", Role::parameter, {{6, 8}, {}}),
                b = build.input("b", Role::parameter, {{6, 2}, {}}),
                a = build.input("a", Role::parameter, {{2, 8}, {}});
  const ValueId change = build.contract(b, a, "nr", "rk", "nk");
  g.results = {build.contract(x, build.add(w, change), "tk", "nk", "tn")};
  g.result_names = {"y"};
  round_products(g, Scalar::bf16);
  ASSERT_EQ(verify(g), "");
  std::vector<Scalar> operands;
  for (const Node& node : g.nodes)
    if (node.op == Op::contract_) operands.push_back(g[node.operands[1]].type.element.scalar);
  EXPECT_EQ(operands, (std::vector{Scalar::f32, Scalar::bf16})) << print(g);
}

TEST(RoundProducts, NothingHappensForF32) {
  Graph g = network();
  const std::string before = print(g);
  round_products(g, Scalar::f32);
  EXPECT_EQ(print(g), before);
}

// Inputs that the short type holds give the very numbers of the plain graph; others are rounded first.
TEST(RoundProducts, NumbersAreThoseOfRoundedOperands) {
  const Graph plain = network();
  auto in = random_inputs(plain, 1, 3);
  for (auto& [name, t] : in)
    for (double& x : t.values) x = as_16bit_float(x);
  Graph g = plain;
  round_products(g, Scalar::bf16);
  EXPECT_EQ(eval(plain, in)[0].values, eval(g, in)[0].values);

  auto raw = random_inputs(plain, 1, 4), rounded = raw;
  for (auto& [name, t] : rounded)
    for (double& x : t.values) x = as_16bit_float(x);
  EXPECT_EQ(eval(g, raw)[0].values, eval(plain, rounded)[0].values);
  EXPECT_NE(eval(g, raw)[0].values, eval(plain, raw)[0].values);
}

// x -> swish(x w + b) -> y, with its gradient: what the backward pass reads of the first product is kept short, views
// or not; gradients of parameters are not rounded, and nothing is that one map reads.
TEST(RoundProducts, KeepsWhatGradientsReadShort) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 4, 16}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{8, 16}, kFloat}),
                u = b.input("u", Role::parameter, {{5, 8}, kFloat}),
                bias = b.input("bias", Role::parameter, {{8}, kFloat});
  const ValueId p = b.add(b.contract(b.reshape(x, {8, 16}), w, "mk", "nk", "mn"), bias);
  const ValueId h = b.reshape(p, {2, 4, 8});
  const ValueId y = b.contract(b.mul(h, b.unary(ScalarOp::exp_, h)), u, "btk", "nk", "btn");
  g.results = {b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1, 2}), {})};
  g.result_names = {"loss"};
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], {w, u});
  for (const ValueId v : gradients) {
    g.results.push_back(v);
    g.result_names.push_back("");
  }
  const auto in = random_inputs(g, 1, 6);
  const Pipeline plan = run_pipeline(g, {}, {}, Scalar::bf16);
  int kept = 0;
  for (const Group& group : plan.plan.groups) {
    for (const ValueId v : group.results) {
      const Type& t = plan.plan.graph[v].type;
      if (elements(t.shape).number() == 8 * 8 && group.shape == KernelShape::dot) {
        kept += 1;
        EXPECT_EQ(t.element.scalar, Scalar::bf16) << print(plan.plan.graph);
      }
    }
  }
  EXPECT_EQ(kept, 2) << "the first product, and the gradient of what it computes" << print(plan.plan.graph);
  for (const ValueId r : plan.plan.graph.results) EXPECT_EQ(plan.plan.graph[r].type.element.scalar, Scalar::f32);
  const PlanRun run = run_plan(plan.plan, plan.memory, in);
  ASSERT_EQ(run.wrong, "");
  const auto exact = eval(g, in);
  for (size_t r = 0; r < exact.size(); ++r) {
    double most = 0;
    for (const double e : exact[r].values) most = std::max(most, std::abs(e));
    for (size_t i = 0; i < exact[r].values.size(); ++i)
      EXPECT_NEAR(run.results[r].values[i], exact[r].values[i], 0.05 * most) << r;
  }
}

// Queries, keys, values and the gradient of what they mixed are rounded once each, below their views, for the attention
// and its gradient; what has the shape of the scores is not. Between the passes the short ones are kept.
TEST(RoundProducts, RoundsWhatAttentionsMultiply) {
  Graph plain;
  Builder b(plain);
  const ValueId x = b.input("x", Role::data, {{2, 6, 8}, kFloat});
  const auto weight = [&](const char* name, int64_t to, int64_t from) {
    return b.input(name, Role::parameter, {{to, from}, kFloat});
  };
  const ValueId wq = weight("wq", 16, 8), wk = weight("wk", 8, 8), wv = weight("wv", 8, 8), wo = weight("wo", 8, 16);
  const auto transposed = [&](ValueId w, Shape shape) {  // as a rotation would
    return b.reshape(b.unary(ScalarOp::neg_, b.contract(x, w, "btk", "nk", "btn")), std::move(shape));
  };
  const ValueId q = transposed(wq, {2, 6, 1, 2, 8}), k = transposed(wk, {2, 6, 1, 8});
  const ValueId v = b.reshape(b.contract(x, wv, "btk", "nk", "btn"), {2, 6, 1, 8});
  const ValueId s = b.contract(q, k, "btgrd", "bsgd", "bgrts");
  const ValueId e = b.unary(ScalarOp::exp_, b.sub(s, b.reduce(s, Reduction::max, {4})));
  const ValueId o = b.contract(b.div(e, b.reduce(e, Reduction::sum, {4})), v, "bgrts", "bsgd", "btgrd");
  const ValueId y = b.contract(b.reshape(o, {2, 6, 16}), wo, "btk", "nk", "btn");
  plain.results = {b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1, 2}), {})};
  for (const ValueId d : differentiate(plain, plain.results[0], {wq, wk, wv, wo})) plain.results.push_back(d);
  plain.result_names.assign(plain.results.size(), "");

  const Pipeline p = run_pipeline(plain, {}, {}, Scalar::bf16);
  const Graph& g = p.plan.graph;
  int attentions = 0;
  for (const Group& group : p.plan.groups) {
    if (group.shape != KernelShape::attend && group.shape != KernelShape::attend_gradient) continue;
    ++attentions;
    int operands = 0;
    for (const ValueId n : group.nodes) {
      if (g[n].op != Op::contract_) continue;
      EXPECT_EQ(g[n].type.element.scalar, Scalar::f32);
      for (const ValueId operand : g[n].operands) {
        const bool inside =
            std::find(group.nodes.begin(), group.nodes.end(), operand) != group.nodes.end() && !is_view(g[operand].op);
        EXPECT_EQ(g[operand].type.element.scalar, inside ? Scalar::f32 : Scalar::bf16) << print(g);
        operands += !inside;
      }
    }
    EXPECT_EQ(operands, group.shape == KernelShape::attend ? 3 : 7);
    for (const ValueId input : group.inputs) {  // f32: what sums of rows left
      const Type& t = g[input].type;
      if (t.element.scalar == Scalar::bf16) continue;
      EXPECT_LE(elements(t.shape).number(), 2 * 6 * 2) << print(g);
    }
  }
  EXPECT_EQ(attentions, 2) << print(g);
  const auto in = random_inputs(plain, 1, 5);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  const auto exact = eval(plain, in);
  for (size_t r = 0; r < exact.size(); ++r) {
    double most = 0;
    for (const double value : exact[r].values) most = std::max(most, std::abs(value));
    for (size_t i = 0; i < exact[r].values.size(); ++i)
      EXPECT_NEAR(run.results[r].values[i], exact[r].values[i], 0.05 * most) << r;
  }
}

// Codes of eight bits under one scale for each tensor: numbers near those of the plain graph, each tensor encoded once,
// however large it is, and products that are not of 16s, or that reductions read, are left to the 16-bit float.
TEST(RoundProducts, CodesUnderAScaleOfTheirTensor) {
  const FormatRef code = FormatLibrary::builtin().get("fp8_e4m3");
  Graph plain;
  Builder b(plain);
  const ValueId x = b.input("x", Role::data, {{2, 16, 32}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{48, 32}, kFloat}),
                u = b.input("u", Role::parameter, {{16, 48}, kFloat}),
                last = b.input("last", Role::parameter, {{11, 16}, kFloat});
  const ValueId h = b.unary(ScalarOp::neg_, b.contract(b.reshape(x, {32, 32}), w, "mk", "nk", "mn"));
  const ValueId y = b.unary(ScalarOp::neg_, b.contract(h, u, "mk", "nk", "mn"));
  const ValueId z = b.contract(y, last, "mk", "nk", "mn");
  plain.results = {b.reshape(b.reduce(b.mul(z, z), Reduction::sum, {0, 1}), {})};
  const std::vector<ValueId> gradients = differentiate(plain, plain.results[0], {x, w, u});
  plain.results.insert(plain.results.end(), gradients.begin(), gradients.end());
  plain.result_names.assign(plain.results.size(), "");
  Graph g = plain;
  round_products(g, {Scalar::bf16, code});
  ASSERT_EQ(verify(g), "");
  int encoded = 0, transposed = 0, in_codes = 0, in_shorts = 0;
  for (const Node& node : g.nodes) {
    if (node.type.element.format) (g[node.operands[0]].op == Op::permute_ ? transposed : encoded) += 1;
    if (node.op != Op::contract_) continue;
    (g[node.operands[0]].type.element.scalar == Scalar::bf16 ? in_shorts : in_codes) += 1;
  }
  // x, w, h, u and the gradients of two products; products with extents of 11 stay. Each is summed over its first axis
  // somewhere.
  EXPECT_EQ(encoded, 6) << print(g);
  EXPECT_EQ(transposed, 6) << print(g);
  EXPECT_EQ(in_codes, 6);
  EXPECT_EQ(in_shorts, 2);

  auto in = random_inputs(plain, 1, 8);
  for (const double size : {1.0, 1e6, 1e-20}) {
    for (double& v : in["x"].values) v = static_cast<float>(v * size);
    const auto exact = eval(plain, in), got = eval(g, in);
    const Pipeline p = run_pipeline(plain, {}, {}, {Scalar::bf16, code});
    size_t together = 0, from_short = 0;
    for (const Group& group : p.plan.groups) {  // both ways at once, and no magnitude is written
      together += group.shape == KernelShape::move && group.results.size() == 2;
      from_short +=
          group.shape == KernelShape::move && p.plan.graph[group.inputs[0]].type.element.scalar == Scalar::bf16;
      for (const ValueId r : group.results) {
        const Node& node = p.plan.graph[r];
        EXPECT_FALSE(node.op == Op::map_ && node.attributes.formula.nodes.back().op == ScalarOp::abs_)
            << print(p.plan.graph);
      }
    }
    EXPECT_EQ(together, 6U) << print(p.plan.graph);
    EXPECT_EQ(from_short, 3U) << "h and the gradients of two products" << print(p.plan.graph);
    const PlanRun run = run_plan(p.plan, p.memory, in);
    ASSERT_EQ(run.wrong, "");
    for (size_t r = 1; r < exact.size(); ++r) {
      double most = 0;
      for (const double e : exact[r].values) most = std::max(most, std::abs(e));
      for (size_t i = 0; i < exact[r].values.size(); ++i) {
        EXPECT_NEAR(got[r].values[i], exact[r].values[i], 0.15 * most + 1e-30) << r << " at " << size;
        EXPECT_NEAR(run.results[r].values[i], got[r].values[i], 1e-5 * most + 1e-30) << r << " at " << size;
      }
    }
  }
}

// Logits, read by a maximum, and everything that computes gradients of their operands; the product before them takes
// codes.
TEST(RoundProducts, LogitsAndTheirGradientsTakeNoCodes) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{32, 16}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{16, 16}, kFloat}),
                table = b.input("table", Role::parameter, {{48, 16}, kFloat});
  const ValueId logits =
      b.contract(b.unary(ScalarOp::neg_, b.contract(x, w, "mk", "nk", "mn")), table, "mk", "nk", "mn");
  const ValueId top = b.reduce(logits, Reduction::max, {1});
  const ValueId sums = b.reduce(b.unary(ScalarOp::exp_, b.sub(logits, top)), Reduction::sum, {1});
  g.results = {b.reshape(b.reduce(b.add(b.unary(ScalarOp::log_, sums), top), Reduction::sum, {0, 1}), {})};
  for (const ValueId d : differentiate(g, g.results[0], {w, table})) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  round_products(g, {Scalar::bf16, FormatLibrary::builtin().get("fp8_e4m3")});
  simplify(g);
  for (const Node& node : g.nodes) {
    if (node.op != Op::contract_) continue;
    const bool wide =
        elements(node.type.shape).number() % 48 == 0 || elements(g[node.operands[0]].type.shape).number() % 48 == 0;
    EXPECT_EQ(g[node.operands[0]].type.element.scalar, wide ? Scalar::bf16 : Scalar::f32) << print(g);
  }
}

// The gradient of what a bias was added to is summed for the bias: that makes no logits of it.
TEST(RoundProducts, GradientsThatAreSummedForABiasTakeCodes) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{32, 16}, kFloat});
  const ValueId bias = b.input("bias", Role::parameter, {{16}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{64, 16}, kFloat}),
                table = b.input("table", Role::parameter, {{48, 64}, kFloat});
  const ValueId hidden = b.contract(b.add(x, bias), w, "mk", "nk", "mn");
  const ValueId logits = b.contract(b.unary(ScalarOp::sin_, hidden), table, "mk", "nk", "mn");
  const ValueId top = b.reduce(logits, Reduction::max, {1});
  g.results = {b.reshape(b.reduce(top, Reduction::sum, {0, 1}), {})};
  for (const ValueId d : differentiate(g, g.results[0], {bias, w})) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  round_products(g, {Scalar::bf16, FormatLibrary::builtin().get("fp8_e4m3")});
  simplify(g);
  int coded = 0;
  for (const Node& node : g.nodes) coded += node.op == Op::contract_ && g[node.operands[0]].type.element == Element{};
  EXPECT_EQ(coded, 3) << print(g);  // the layer forward, the gradients of its input and of its weight
}

// As a plan, group by group: the casts and products that fuse makes are the same numbers.
TEST(RoundProducts, PlansEqualTheGraph) {
  const Graph plain = network();
  const auto in = random_inputs(plain, 1, 5);
  Graph g = plain;
  round_products(g, Scalar::bf16);
  const Pipeline p = run_pipeline(plain, {}, {}, Scalar::bf16);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  EXPECT_EQ(run.results[0].values, eval(g, in)[0].values);
}

}  // namespace
}  // namespace lumen::graph
