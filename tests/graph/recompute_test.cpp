// Needs: none. What is computed again between borders of the forward part: the same bits, less memory.
#include "graph/keep/recompute.h"

#include <gtest/gtest.h>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/verify.h"
#include "graph/keep/keep.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

constexpr int64_t kRows = 64, kWidth = 16, kWide = 64;
constexpr int kLayers = 6;
constexpr int kMany = 40;  // so many that forward and backward are far from each other

// Residual layers with their gradient.
Graph tower(int layers = kLayers) {
  Graph g;
  Builder b(g);
  ValueId x = b.input("x", Role::data, {{kRows, kWidth}, kFloat});
  std::vector<ValueId> weights;
  for (int i = 0; i < layers; ++i) {
    const ValueId up = b.input("up" + std::to_string(i), Role::parameter, {{kWide, kWidth}, kFloat});
    const ValueId down = b.input("down" + std::to_string(i), Role::parameter, {{kWidth, kWide}, kFloat});
    weights.insert(weights.end(), {up, down});
    const ValueId h = b.unary(ScalarOp::tanh_, b.contract(x, up, "mk", "nk", "mn"));
    x = b.add(x, b.contract(b.unary(ScalarOp::tanh_, b.mul(h, h)), down, "mk", "nk", "mn"));
  }
  g.results = {b.reshape(b.reduce(b.mul(x, x), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  const std::vector<ValueId> gradients = differentiate(g, g.results[0], weights);
  for (size_t i = 0; i < weights.size(); ++i) b.update(weights[i], b.sub(weights[i], gradients[i]));
  simplify(g);
  return g;
}

TEST(Recompute, SameBitsInLessMemory) {
  const Graph g = tower();
  const auto stretches = find_stretches(g, g.results[0]);
  ASSERT_GE(stretches.size(), static_cast<size_t>(kLayers - 2));
  const Graph again = recompute_stretches(g, g.results[0], stretches);
  ASSERT_EQ(verify(again), "");
  EXPECT_GT(again.nodes.size(), g.nodes.size());
  const auto in = random_inputs(g, 1, 4);
  std::map<std::string, Tensor> a, b;
  EXPECT_EQ(eval(g, in, {}, &a)[0].values, eval(again, in, {}, &b)[0].values);
  for (const auto& [name, t] : a) EXPECT_EQ(t.values, b.at(name).values) << name;
  const int64_t all = plan_recomputing(g, {}, plan_graph).memory.arena_bytes;
  const int64_t least = plan_recomputing(g, {Recompute::What::layers, 0}, plan_graph).memory.arena_bytes;
  EXPECT_LT(least, all * 3 / 4);
  const int64_t most = (all + least) / 2;
  const int64_t fitted = plan_recomputing(g, {Recompute::What::fit, most}, plan_graph).memory.arena_bytes;
  EXPECT_LE(fitted, most);
  EXPECT_EQ(plan_recomputing(g, {Recompute::What::fit, all}, plan_graph).memory.arena_bytes, all);
}

// The inner tanh of a layer is made of the product before it, which its gradient reads as well.
TEST(Recompute, MapsOfWhatIsKept) {
  const Graph g = tower(kMany);
  const Graph again = recompute_maps(g, g.results[0]);
  ASSERT_EQ(verify(again), "");
  EXPECT_GT(again.nodes.size(), g.nodes.size());
  const auto products = [](const Graph& x) {
    return std::count_if(x.nodes.begin(), x.nodes.end(), [](const Node& n) { return n.op == Op::contract_; });
  };
  EXPECT_EQ(products(again), products(g));
  const auto in = random_inputs(g, 1, 4);
  std::map<std::string, Tensor> a, b;
  EXPECT_EQ(eval(g, in, {}, &a)[0].values, eval(again, in, {}, &b)[0].values);
  for (const auto& [name, t] : a) EXPECT_EQ(t.values, b.at(name).values) << name;
  EXPECT_LT(plan_recomputing(g, {Recompute::What::maps, 0}, plan_graph).memory.arena_bytes,
            plan_recomputing(g, {}, plan_graph).memory.arena_bytes);
}

}  // namespace
}  // namespace lumen::graph
