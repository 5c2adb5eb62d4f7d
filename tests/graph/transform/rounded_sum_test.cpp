// Needs: none. Sums of weights and changes inside a rounding: the numbers, their gradients, and gradients without wide
// products.
#include "graph/transform/rounded_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

const Element kFloat{};

Tensor filled(const Shape& shape, double step) {
  Tensor t;
  t.type = {shape, kFloat};
  const int64_t count = elements(shape).number();
  for (int64_t i = 0; i < count; ++i) t.values.push_back(static_cast<double>((i * 5 + 2) % 7 - 3) * step);
  return t;
}

// The sum of squares of x w^T, with w [8, 6].
Graph network() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 6}, kFloat}), w = b.input("w", Role::parameter, {{8, 6}, kFloat});
  const ValueId y = b.contract(x, w, "mk", "nk", "mn");
  g.results = {b.reshape(b.reduce(b.mul(y, y), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

RoundedSum sum_of(int64_t group = 0) {
  RoundedSum s;
  s.change.weight = "w";
  s.change.rank = 2;
  s.change.scale = 0.5;
  s.group = group;
  return s;
}

std::map<std::string, Tensor> inputs() {
  return {{"x", filled({3, 6}, 0.5)},
          {"w", filled({8, 6}, 0.25)},
          {low_rank_a("w"), filled({2, 6}, 0.5)},
          {low_rank_b("w"), filled({8, 2}, 1)},
          {group_magnitude("w"), filled({8, 2}, 0.75)}};
}

std::vector<Tensor> run(const Graph& g, std::map<std::string, Tensor> in) {
  std::erase_if(in, [&](const auto& i) { return g.find_input(i.first) < 0; });
  EvalOptions o;
  o.wide = true;
  return eval(g, in, o);
}

TEST(RoundedSum, IsReadInTheWeightsPlace) {
  for (const int64_t group : {0, 3}) {
    const Graph with = changed(network(), {.sums = {sum_of(group)}});
    ASSERT_EQ(verify(with), "");
    auto in = inputs();
    const auto& a = in.at(low_rank_a("w")).values;
    const auto& b = in.at(low_rank_b("w")).values;
    auto merged = in;
    for (size_t n = 0; n < 8; ++n)
      for (size_t k = 0; k < 6; ++k) {
        double& w = merged.at("w").values[n * 6 + k];
        w += 0.5 * (b[n * 2] * a[k] + b[n * 2 + 1] * a[6 + k]);
        if (group > 0) w *= in.at(group_magnitude("w")).values[n * 2 + k / 3];
      }
    EXPECT_NEAR(run(with, in)[0].values[0], run(network(), merged)[0].values[0], 1e-9);
  }
}

// Gradients of A and B without the weight's: the same numbers, and nothing of the weight's size among the values but
// the sum itself.
TEST(RoundedSum, NarrowGradientsAreTheSame) {
  Graph g = changed(network(), {.sums = {sum_of()}});
  const auto gradients = differentiate(g, g.results[0], {g.find_input(low_rank_a("w")), g.find_input(low_rank_b("w"))});
  g.results.insert(g.results.end(), gradients.begin(), gradients.end());
  g.result_names = {"loss", "a", "b"};
  simplify(g);
  const Graph narrow = narrow_gradients(g);
  ASSERT_EQ(verify(narrow), "");
  const auto want = run(g, inputs()), got = run(narrow, inputs());
  ASSERT_EQ(got.size(), 3U);
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < want[i].values.size(); ++j) EXPECT_NEAR(got[i].values[j], want[i].values[j], 1e-9);
  const auto wide = [](const Graph& graph) {
    const std::vector<bool> live = live_values(graph);
    int64_t count = 0;
    for (size_t v = 0; v < graph.nodes.size(); ++v)
      count += live[v] && graph.nodes[v].op == Op::contract_ && graph.nodes[v].type.shape == Shape{8, 6};
    return count;
  };
  EXPECT_EQ(wide(g), 2);       // B A, and the weight's gradient
  EXPECT_EQ(wide(narrow), 1);  // B A
}

TEST(RoundedSum, GradientsAreFiniteDifferences) {
  Graph g = changed(network(), {.sums = {sum_of(3)}});
  const Graph plain = g;
  const std::vector<std::string> names = {low_rank_a("w"), low_rank_b("w"), group_magnitude("w")};
  std::vector<ValueId> with;
  for (const std::string& name : names) with.push_back(g.find_input(name));
  const auto gradients = differentiate(g, g.results[0], with);
  g.results.insert(g.results.end(), gradients.begin(), gradients.end());
  g.result_names.resize(g.results.size(), "gradient");
  auto in = inputs();
  const auto exact = run(narrow_gradients(g), in);
  for (size_t p = 0; p < names.size(); ++p) {
    auto& values = in.at(names[p]).values;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = values[i], h = 1e-4;
      const auto at = [&](double value) {
        values[i] = value;
        const double y = run(plain, in)[0].values[0];
        values[i] = x;
        return y;
      };
      EXPECT_NEAR((at(x + h) - at(x - h)) / (2 * h), exact[p + 1].values[i],
                  1e-5 * std::abs(exact[p + 1].values[i]) + 1e-6);
    }
  }
}

TEST(RoundedSum, RefusesWhatIsNoMatrix) {
  RoundedSum unknown = sum_of();
  unknown.change.weight = "v";
  EXPECT_THROW(changed(network(), {.sums = {unknown}}), Error);
  EXPECT_THROW(changed(network(), {.sums = {sum_of(4)}}), Error);  // groups of 4 in rows of 6
}

}  // namespace
}  // namespace lumen::graph
