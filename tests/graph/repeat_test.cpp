// Needs: none. Parameters rounded for the forward pass are rounded again for the backward pass: less memory, the same
// bits.
#include <gtest/gtest.h>

#include "blocks.h"
#include "graph/fuse/fuse.h"
#include "graph/grad/reverse.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

constexpr int64_t kRows = 8, kWidth = 192;
constexpr int kLayers = 24;

// A tower of products with its gradient, rounded.
Graph tower() {
  Graph g;
  Builder b(g);
  ValueId x = b.input("x", Role::data, {{kRows, kWidth}, kFloat});
  std::vector<ValueId> weights;
  for (int i = 0; i < kLayers; ++i) {
    weights.push_back(b.input("w" + std::to_string(i), Role::parameter, {{kWidth, kWidth}, kFloat}));
    const ValueId y = b.contract(x, weights.back(), "mk", "nk", "mn");
    x = b.div(y, b.unary(ScalarOp::sqrt_, b.add(b.mul(y, y), b.scalar(1))));
  }
  g.results = {b.reshape(b.reduce(b.mul(x, x), Reduction::sum, {0, 1}), {})};
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], weights);
  for (int i = 0; i < kLayers; ++i)
    b.update(weights[static_cast<size_t>(i)],
             b.sub(weights[static_cast<size_t>(i)], gradients[static_cast<size_t>(i)]));
  g.result_names = {"loss"};
  round_products(g, Scalar::bf16);
  simplify(g);
  return g;
}

int casts(const Graph& g, const std::string& name) {
  int count = 0;
  for (const Node& n : g.nodes)
    count += n.op == Op::map_ && n.type.element.scalar == Scalar::bf16 && g[n.operands[0]].op == Op::input_ &&
             g[n.operands[0]].attributes.name == name;
  return count;
}

TEST(RepeatCasts, FarProductsRoundAgain) {
  const Graph g = tower();
  Graph repeated = g;
  repeat_casts(repeated);
  ASSERT_EQ(verify(repeated), "");
  EXPECT_EQ(casts(g, "w0"), 1);
  EXPECT_EQ(casts(repeated, "w1"), 2);
  EXPECT_EQ(casts(repeated, "w" + std::to_string(kLayers - 1)), 1) << "the last product's gradient is near";
  const auto in = random_inputs(g, 1, 4);
  std::map<std::string, Tensor> a, b;
  EXPECT_EQ(eval(g, in, {}, &a)[0].values, eval(repeated, in, {}, &b)[0].values);
  for (const auto& [name, t] : a) EXPECT_EQ(t.values, b.at(name).values) << name;
}

TEST(RepeatCasts, TheyAreNotKeptBetweenPasses) {
  const Pipeline p = run_pipeline(tower(), {}, {});
  std::vector<int> first(p.plan.graph.nodes.size(), -1), last(first);
  for (int k = 0; k < static_cast<int>(p.plan.groups.size()); ++k) {
    for (ValueId v : p.plan.groups[k].results) first[v] = k;
    for (ValueId v : p.plan.groups[k].inputs) last[v] = k;
  }
  int most = 0;
  for (int k = 0; k < static_cast<int>(p.plan.groups.size()); ++k) {
    int alive = 0;
    for (size_t v = 0; v < first.size(); ++v) {
      const Type& t = p.plan.graph[static_cast<ValueId>(v)].type;
      alive += t.element.scalar == Scalar::bf16 && elements(t.shape) == Dim(kWidth * kWidth) && first[v] >= 0 &&
               first[v] <= k && k <= last[v];
    }
    most = std::max(most, alive);
  }
  EXPECT_LT(most, kLayers / 2);
  const auto in = random_inputs(tower(), 1, 5);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  EXPECT_EQ(run.wrong, "");
}

}  // namespace
}  // namespace lumen::graph
