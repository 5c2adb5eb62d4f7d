// Needs: none. Gradients of losses over rows, taken in parts: the same numbers, and never the whole product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "tests/graph/blocks.h"
#include "tests/graph/plan_run.h"

namespace lumen::graph {
namespace {

const BlockSizes kSizes{.batch = 2, .tokens = 6, .vocabulary = 40};
constexpr int64_t kLogits = 2 * 6 * 40 * 4, kMost = 400;  // bytes

std::vector<ValueId> parameters_of(const Graph& g) {
  std::vector<ValueId> all;
  for (ValueId v : g.inputs())
    if (g[v].attributes.role == Role::parameter) all.push_back(v);
  return all;
}

// The loss and all gradients; by parts where most_bytes is not 0.
Graph with_gradients(Graph g, ValueId loss, int64_t most_bytes) {
  const std::vector<ValueId> wanted = parameters_of(g);
  std::vector<ValueId> gradients =
      most_bytes == 0 ? differentiate(g, loss, wanted) : differentiate_by_rows(g, loss, wanted, most_bytes);
  g.results = {loss};
  g.results.insert(g.results.end(), gradients.begin(), gradients.end());
  g.result_names.assign(g.results.size(), "");
  EXPECT_EQ(verify(g), "");
  simplify(g);
  return g;
}

int64_t widest(const Graph& g) {
  int64_t bytes = 0;
  for (const Node& n : g.nodes)
    if (!n.type.shape.empty() && n.type.shape.back() == Dim(kSizes.vocabulary))
      bytes = std::max(bytes, byte_size(n.type));
  return bytes;
}

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t r = 0; r < a.size(); ++r) {
    double most = 0;
    for (const double x : b[r].values) most = std::max(most, std::abs(x));
    for (size_t i = 0; i < a[r].values.size(); ++i)
      ASSERT_NEAR(a[r].values[i], b[r].values[i], tolerance * most) << "result " << r;
  }
}

TEST(ByRows, PartsGiveTheGradientsOfTheWhole) {
  Graph g;
  Builder b(g);
  const ValueId loss = transformer(b, kSizes);
  const auto in = random_inputs(g, kSizes.vocabulary, 3);
  EvalOptions wide;
  wide.wide = true;
  const Graph whole = with_gradients(g, loss, 0), parts = with_gradients(g, loss, kMost);
  EXPECT_EQ(widest(whole), kLogits);
  EXPECT_LE(widest(parts), kMost) << print(parts);
  expect_equal(eval(parts, in, wide), eval(whole, in, wide), 1e-12);

  const Pipeline p = run_pipeline(parts, {}, {});
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  expect_equal(run.results, eval(whole, in, wide), 1e-4);
}

// However many rows there are, the graph, and what later passes have to do, is bounded.
TEST(ByRows, ManyRowsMakeNoMoreParts) {
  const auto nodes = [](int64_t batch) {
    Graph g;
    Builder b(g);
    BlockSizes sizes = kSizes;
    sizes.batch = batch;
    const ValueId loss = transformer(b, sizes);
    return with_gradients(g, loss, int64_t{1} << 20).nodes.size();
  };
  const size_t many = nodes(int64_t{1} << 20);
  EXPECT_LE(nodes(int64_t{1} << 30), many);
  EXPECT_LE(nodes(int64_t{1} << 40), many);
}

struct Wide {
  int products = 0, at_once = 0;  // in all, and values in memory at a time
};
Wide wide_values(const Graph& g) {
  // As large groups stand; small ones, as these are, may come to stand together behind that.
  const Pipeline p{fuse(with_rounded_products(g, {}, {}, {})), {}};
  std::vector<int> first(p.plan.graph.nodes.size(), -1), last(first);
  for (int k = 0; k < static_cast<int>(p.plan.groups.size()); ++k) {
    for (ValueId v : p.plan.groups[k].results) first[v] = k;
    for (ValueId v : p.plan.groups[k].inputs) last[v] = k;
  }
  Wide out;
  for (int k = 0; k < static_cast<int>(p.plan.groups.size()); ++k) {
    int alive = 0;
    for (size_t v = 0; v < first.size(); ++v) {
      const Type& t = p.plan.graph[static_cast<ValueId>(v)].type;
      const bool wide = t.shape.size() == 2 && t.shape[1] == Dim(kSizes.vocabulary);
      if (!wide || first[v] < 0) continue;
      alive += first[v] <= k && k <= last[v];
      out.products += first[v] == k && p.plan.groups[k].shape == KernelShape::dot;
    }
    out.at_once = std::max(out.at_once, alive);
  }
  return out;
}

// A part is differentiated before the next is computed: its product is gone by then. Where the loss mixes rows, all
// parts come once before.
TEST(ByRows, OnePartIsInMemoryAtATime) {
  Graph g;
  Builder b(g);
  const ValueId mean = transformer(b, kSizes);
  const Wide once = wide_values(with_gradients(g, mean, kMost));
  EXPECT_EQ(once.products, 6);
  EXPECT_LE(once.at_once, 2) << "the product and its gradient";
  const ValueId mixed = b.unary(ScalarOp::tanh_, b.mul(mean, mean));
  const Wide twice = wide_values(with_gradients(g, mixed, kMost));
  EXPECT_EQ(twice.products, 12);
  EXPECT_LE(twice.at_once, 2);
}

// The gradient of each row's loss depends on the others: parts are computed twice.
TEST(ByRows, LossesThatMixRowsAreTakenInPartsToo) {
  Graph g;
  Builder b(g);
  const ValueId mean = transformer(b, kSizes), loss = b.unary(ScalarOp::tanh_, b.mul(mean, mean));
  const auto in = random_inputs(g, kSizes.vocabulary, 4);
  EvalOptions wide;
  wide.wide = true;
  const Graph whole = with_gradients(g, loss, 0), parts = with_gradients(g, loss, kMost);
  EXPECT_LE(widest(parts), kMost) << print(parts);
  expect_equal(eval(parts, in, wide), eval(whole, in, wide), 1e-12);
  const Pipeline p = run_pipeline(parts, {}, {});
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "");
  expect_equal(run.results, eval(whole, in, wide), 1e-4);
}

// Results without gradients, of each row and of all.
TEST(ByRows, ResultsAreComputedInPartsToo) {
  Graph g;
  Builder b(g);
  const ValueId mean = transformer(b, kSizes), squared = b.mul(mean, mean);
  g.results = {mean, squared};
  g.result_names = {"mean", "squared"};
  const auto in = random_inputs(g, kSizes.vocabulary, 5);
  EvalOptions wide;
  wide.wide = true;
  Graph parts = g;
  compute_by_rows(parts, kMost);
  EXPECT_EQ(verify(parts), "");
  simplify(parts);
  simplify(g);
  EXPECT_EQ(widest(g), kLogits);
  EXPECT_LE(widest(parts), kMost) << print(parts);
  expect_equal(eval(parts, in, wide), eval(g, in, wide), 1e-12);
  EXPECT_LE(wide_values(parts).at_once, 1);
}

// What the loss depends on beside the rows is not lost.
TEST(ByRows, ALossWithMoreThanRowsIsTakenWhole) {
  Graph g;
  Builder b(g);
  const ValueId mean = transformer(b, kSizes);
  const ValueId w = parameters_of(g)[0];
  std::vector<int> axes;
  for (size_t d = 0; d < g[w].type.shape.size(); ++d) axes.push_back(static_cast<int>(d));
  const ValueId loss = b.add(mean, b.reshape(b.reduce(b.mul(w, w), Reduction::sum, axes), {}));
  const auto in = random_inputs(g, kSizes.vocabulary, 6);
  const Graph whole = with_gradients(g, loss, 0), parts = with_gradients(g, loss, kMost);
  expect_equal(eval(parts, in), eval(whole, in), 0);
}

// Logits compared with a teacher's: neither is ever whole.
TEST(ByRows, ATeachersProductIsPartedAlike) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{12, 8}, kFloat}), t = b.input("t", Role::data, {{12, 8}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{40, 8}, kFloat}),
                teacher = b.input("teacher", Role::data, {{40, 8}, kFloat});
  const auto log_probabilities = [&](ValueId y) {
    const ValueId down = b.sub(y, b.reduce(y, Reduction::max, {1}));
    return b.sub(down, b.unary(ScalarOp::log_, b.reduce(b.unary(ScalarOp::exp_, down), Reduction::sum, {1})));
  };
  const ValueId p = log_probabilities(b.contract(x, w, "mk", "nk", "mn")),
                q = log_probabilities(b.contract(b.unary(ScalarOp::tanh_, t), teacher, "mk", "nk", "mn"));
  const ValueId rows = b.reduce(b.mul(b.unary(ScalarOp::exp_, q), b.sub(q, p)), Reduction::sum, {1});
  const ValueId loss = b.reshape(b.reduce(b.mul(rows, rows), Reduction::sum, {0, 1}), {});
  const auto in = random_inputs(g, 1, 7);
  EvalOptions wide;
  wide.wide = true;
  const Graph whole = with_gradients(g, loss, 0), parts = with_gradients(g, loss, 2 * kMost);
  EXPECT_LE(widest(parts), kMost) << print(parts);
  expect_equal(eval(parts, in, wide), eval(whole, in, wide), 1e-12);
}

// Weights of rows that are data are known beforehand.
TEST(ByRows, RowsMayBeWeighted) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{12, 8}, kFloat}),
                weights = b.input("weights", Role::data, {{12}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{40, 8}, kFloat}),
                bias = b.input("bias", Role::parameter, {{40}, kFloat});
  const ValueId y = b.add(b.contract(x, w, "mk", "nk", "mn"), bias);
  const ValueId rows = b.reshape(b.reduce(b.unary(ScalarOp::exp_, y), Reduction::sum, {1}), {12});
  const ValueId loss = b.reshape(b.reduce(b.mul(rows, weights), Reduction::sum, {0}), {});
  const auto in = random_inputs(g, 1, 5);
  EvalOptions wide;
  wide.wide = true;
  const Graph whole = with_gradients(g, loss, 0), parts = with_gradients(g, loss, kMost);
  EXPECT_LE(widest(parts), kMost) << print(parts);
  expect_equal(eval(parts, in, wide), eval(whole, in, wide), 1e-12);
}

}  // namespace
}  // namespace lumen::graph
