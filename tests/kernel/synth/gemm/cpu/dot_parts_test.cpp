// needs: none. Products over parts of a long K against the graph's own evaluation, by the loop evaluator.
#include "kernel/synth/gemm/dot_parts.h"

#include <gtest/gtest.h>

#include "kernel/synth/gemm/choose.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::ValueId;

constexpr std::string_view kParts = "tiles over parts of K";

void expect_parts(const graph::Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs)[0];
  const graph::Plan plan = dot_test::one_dot_group(g);
  for (const char* name : {"avx512", "x86-64-v3", "neon"}) {
    const auto m = machine::find_machine(name);
    const std::optional<synth::Synthesis> s = dot_test::steps_of_family(plan, *m, {kParts}, {.exact = true});
    ASSERT_TRUE(s) << name;
    ASSERT_EQ(s->steps.size(), 2U) << "a product, and the sum of its parts";
    const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(*s, plan, inputs, *m));
    ASSERT_EQ(got.size(), want.values.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want.values[i], 1e-4 * (1 + std::abs(want.values[i]))) << s->steps[0].plan << " at " << i;
  }
}

TEST(DotParts, AWeightsGradient) {
  graph::Graph g;
  graph::Builder b(g);
  const ValueId dy = b.input("dy", graph::Role::data, dot_test::type_of({6, 5, 14, 3}));
  const ValueId x = b.input("x", graph::Role::data, dot_test::type_of({6, 7, 16, 4}));
  const ValueId views = b.windows(
      x, {0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1}, {6, 5, 3, 14, 3, 4});
  g.results = {b.contract(dy, views, "nhvo", "nhivjc", "oijc")};
  g.result_names = {"r"};
  expect_parts(g, 1);
}

TEST(DotParts, ResultsAnyWayRoundAndWithMaps) {
  for (const char* result : {"oc", "co"}) {
    graph::Graph g;
    graph::Builder b(g);
    const ValueId x = b.input("x", graph::Role::data, dot_test::type_of({8, 67, 5}));
    const ValueId y = b.input("y", graph::Role::data, dot_test::type_of({67, 8, 11}));
    const ValueId r = b.contract(x, y, "nko", "knc", result);
    const ValueId level = b.input("level", graph::Role::data, dot_test::type_of({b.type(r).shape[1].number()}));
    g.results = {b.mul(b.add(r, level), r)};
    g.result_names = {"r"};
    expect_parts(g, 2);
  }
}

TEST(DotParts, OnlyWhereSumsAreLong) {
  graph::Graph g;
  graph::Builder b(g);
  const ValueId x = b.input("x", graph::Role::data, dot_test::type_of({4, 16, 24}));
  const ValueId y = b.input("y", graph::Role::data, dot_test::type_of({16, 4, 24}));
  g.results = {b.contract(x, y, "nko", "knc", "oc")};
  g.result_names = {"r"};
  const graph::Plan plan = dot_test::one_dot_group(g);
  EXPECT_FALSE(dot_test::steps_of_family(plan, *machine::find_machine("avx512"), {kParts}, {.exact = true}));
}

}  // namespace
}  // namespace lumen
