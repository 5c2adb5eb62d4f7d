// Needs: none. Passes keep meaning: on random graphs, eval before equals eval after, bit for bit, down to the plan in
// its bytes.
#include <gtest/gtest.h>

#include <bit>

#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "plan_run.h"
#include "random_graph.h"

namespace lumen::graph {
namespace {

constexpr uint32_t kSeeds = 600;

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(a[r].type, b[r].type) << what;
    for (size_t k = 0; k < a[r].values.size(); ++k) {
      const double x = a[r].values[k], y = b[r].values[k];
      ASSERT_TRUE(std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y) || (x != x && y != y))
          << what << ": result " << r << "[" << k << "] is " << y << ", was " << x;
    }
  }
}

TEST(Random, GraphsPrintAndParse) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Graph g = RandomGraph(seed).graph();
    ASSERT_EQ(verify(g), "") << "seed " << seed;
    const std::string text = print(g);
    const auto parsed = parse(std::make_shared<Source>(Source{"random", text}), nullptr);
    ASSERT_EQ(print(*parsed.back()), text) << "seed " << seed;
  }
}

TEST(Pass, SimplifyKeepsBits) {
  size_t before = 0, after = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    RandomGraph random(seed);
    Graph g = random.graph();
    const auto in = random.inputs();
    std::map<std::string, Tensor> states, simplified_states;
    const auto expected = eval(g, in, {}, &states);
    before += g.nodes.size();
    simplify(g);
    after += g.nodes.size();
    ASSERT_EQ(verify(g), "") << "seed " << seed;
    expect_same(expected, eval(g, in, {}, &simplified_states), fmt::format("seed {}\n{}", seed, print(g)));
    for (const auto& [name, t] : states)
      expect_same({t}, {simplified_states[name]}, fmt::format("seed {} {}", seed, name));
    if (HasFatalFailure()) return;
  }
  EXPECT_LT(after, before);
}

TEST(Pass, SplitContractsKeepsBits) {
  int changed = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    RandomGraph random(seed);
    Graph g = random.graph();
    const auto in = random.inputs();
    const auto expected = eval(g, in);
    const std::string before = print(g);
    split_contracts(g);
    ASSERT_EQ(verify(g), "") << "seed " << seed;
    expect_same(expected, eval(g, in), fmt::format("seed {}\n{}", seed, print(g)));
    if (HasFatalFailure()) return;
    changed += print(g) != before ? 1 : 0;
  }
  EXPECT_GT(changed, 5);
}

void check_plan(const Graph& g, const std::map<std::string, Tensor>& in, const std::string& what) {
  std::map<std::string, Tensor> states;
  const auto expected = eval(g, in, {}, &states);
  const Plan plan = fuse(g);
  ASSERT_EQ(verify(plan.graph), "") << what;
  const PlanRun run = run_plan(plan, plan_memory(plan), in);
  ASSERT_EQ(run.wrong, "") << what << "\n" << print(plan.graph);
  expect_same(expected, run.results, what + "\n" + print(plan.graph));
  for (const auto& [name, t] : states) expect_same({t}, {run.states.at(name)}, what + " state " + name);
}

TEST(Pass, PlansComputeWhatTheGraphSays) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    RandomGraph random(seed);
    Graph g = random.graph();
    const auto in = random.inputs();
    check_plan(g, in, fmt::format("seed {}", seed));
    if (HasFatalFailure()) return;
    simplify(g);
    check_plan(g, in, fmt::format("seed {} simplified", seed));
    if (HasFatalFailure()) return;
  }
}

TEST(Pass, InlineKeepsMeaningAndNames) {
  const std::string text = R"(graph twice(%a: data tensor<Txf32>) {
  %1 = map %a (%0: f32) { %1 = add f32 %0, %0 } -> %1 : tensor<Txf32>
  return %1
}

graph four(%a: data tensor<Txf32>) {
  %1 = call %a @twice : tensor<Txf32>
  %2 = call %1 @twice : tensor<Txf32>
  return %1, %2
}

graph main(%x: data tensor<Txf32>) {
  %1 = call %x @four : tensor<Txf32>
  %2 = result %1 index=1 : tensor<Txf32>
  return y = %2
}
)";
  const auto parsed = parse(std::make_shared<Source>(Source{"calls", text}), nullptr);
  Graph g = *parsed.back();
  const std::map<std::string, Tensor> in{{"x", {{{2}, {}}, {1, 2.5}, {}}}};
  const auto expected = eval(g, in);
  EXPECT_EQ(expected[0].values, (std::vector<double>{4, 10}));
  inline_calls(g);
  EXPECT_EQ(verify(g), "");
  for (const Node& n : g.nodes) EXPECT_NE(n.op, Op::call_);
  EXPECT_EQ(g[g.results[0]].label, "twice");
  expect_same(expected, eval(g, in), "inlined");
}

TEST(Pass, BindRefusesWhatCannotBe) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{Dim("T"), 4}, {}});
  b.slice(x, {3, 0}, {2, 4});
  EXPECT_THROW(bind_symbols(g, {}), Error);
  EXPECT_THROW(bind_symbols(g, {{"T", 4}}), Error);
  EXPECT_EQ(verify(bind_symbols(g, {{"T", 5}})), "");
}

}  // namespace
}  // namespace lumen::graph
