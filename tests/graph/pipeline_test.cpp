// Needs: none. The page of all passes, with training on it: what a trainer states becomes one graph, step by step.
#include "graph/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include "blocks.h"
#include "graph/ir/verify.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

constexpr int64_t kRows = 4, kWidth = 6;

// y = x w^T, in a function that is called.
Graph function() {
  auto product = std::make_shared<Graph>();
  product->name = "linear";
  {
    Builder b(*product);
    const ValueId x = b.input("x", Role::data, {{Dim("B"), kWidth}, kFloat}),
                  w = b.input("w", Role::parameter, {{kRows, kWidth}, kFloat});
    product->results = {b.contract(x, w, "mk", "nk", "mn")};
    product->result_names = {"y"};
  }
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{Dim("B"), kWidth}, kFloat}),
                w = b.input("w", Role::parameter, {{kRows, kWidth}, kFloat});
  g.results = {b.result(b.call(product, {x, w}), 0)};
  g.result_names = {"y"};
  return g;
}

// The sum of all a function gives.
Graph sum_of(Graph g) {
  inline_calls(g);
  Builder b(g);
  g.results = {b.reshape(b.reduce(g.results[0], Reduction::sum, {0, 1}), {})};
  return g;
}

// p - d loss / d p.
TrainingStep descent(const std::vector<std::string>& trained) {
  TrainingStep step;
  step.name = "descent";
  step.trained.most_logits = [](const Graph&) { return int64_t{1} << 20; };
  const auto parameters = [trained](const Graph& g) {
    std::vector<ValueId> values;
    for (const std::string& name : trained) values.push_back(g.find_input(name));
    return values;
  };
  step.parameters = parameters;
  step.update = [parameters](Graph& g, const std::vector<ValueId>& gradients) {
    const std::vector<ValueId> values = parameters(g);
    Builder b(g);
    for (size_t i = 0; i < values.size(); ++i) b.update(values[i], b.sub(values[i], gradients[i]));
  };
  return step;
}

// d sum(x w^T) / d w[n, k] is the sum of column k of x.
TEST(Pipeline, AStepIsLossGradientAndUpdate) {
  const Graph loss = loss_graph(function(), {}, {{"B", 3}}, sum_of), step = training_graph(loss, {}, descent({"w"}));
  EXPECT_EQ(verify(step), "");
  EXPECT_EQ(step.name, "descent");
  EXPECT_EQ(step.result_names, std::vector<std::string>{"loss"});
  const auto in = random_inputs(step, 1, 3);
  std::map<std::string, Tensor> states;
  const std::vector<Tensor> results = eval(step, in, {}, &states);
  const std::vector<double>&x = in.at("x").values, &w = in.at("w").values;
  double sum = 0;
  for (int64_t m = 0; m < 3; ++m)
    for (int64_t n = 0; n < kRows; ++n)
      for (int64_t k = 0; k < kWidth; ++k)
        sum += x[static_cast<size_t>(m * kWidth + k)] * w[static_cast<size_t>(n * kWidth + k)];
  EXPECT_NEAR(results[0].values[0], sum, 1e-4);
  for (int64_t n = 0; n < kRows; ++n)
    for (int64_t k = 0; k < kWidth; ++k) {
      double column = 0;
      for (int64_t m = 0; m < 3; ++m) column += x[static_cast<size_t>(m * kWidth + k)];
      const auto at = static_cast<size_t>(n * kWidth + k);
      EXPECT_NEAR(states.at("w").values[at], w[at] - column, 1e-5) << n << " " << k;
    }
  const Pipeline p = run_pipeline(step, {}, {});
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  EXPECT_EQ(run.results[0].values, results[0].values);
  EXPECT_EQ(run.states.at("w").values, states.at("w").values);
}

// Changes are part of what is differentiated; the weight beside them stays.
TEST(Pipeline, ChangesComeBeforeTheLoss) {
  Changes changes;
  changes.low_rank = {{"w", 2}};
  const Graph loss = loss_graph(function(), changes, {{"B", 3}}, sum_of),
              step = training_graph(loss, changes, descent({low_rank_a("w"), low_rank_b("w")}));
  const auto in = random_inputs(step, 1, 7);
  std::map<std::string, Tensor> states;
  eval(step, in, {}, &states);
  EXPECT_EQ(states.size(), 2U);
  EXPECT_NE(states.at(low_rank_a("w")).values, in.at(low_rank_a("w")).values);
  EXPECT_NE(states.at(low_rank_b("w")).values, in.at(low_rank_b("w")).values);
  const Pipeline p = run_pipeline(step, {}, {});
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  EXPECT_EQ(run.states.at(low_rank_a("w")).values, states.at(low_rank_a("w")).values);
}

// Between steps the loss is what a step says of it before it changes anything.
TEST(Pipeline, EvaluationsSeeTheSameLoss) {
  const Graph loss = loss_graph(function(), {}, {{"B", 3}}, sum_of);
  const TrainingStep step = descent({"w"});
  const Graph training = training_graph(loss, {}, step), evaluation = evaluation_graph(loss, {}, step.trained);
  const auto in = random_inputs(evaluation, 1, 9);
  std::map<std::string, Tensor> states;
  EXPECT_EQ(eval(evaluation, in)[0].values, eval(training, in, {}, &states)[0].values);
}

// A function that nothing changes is left as its author wrote it, calls included.
TEST(Pipeline, NoChangesChangeNothing) {
  EXPECT_EQ(changed(function(), {}).nodes.size(), function().nodes.size());
}

}  // namespace
}  // namespace lumen::graph
