// needs: none. Dots along k for few rows, by the loop evaluator.
#include "kernel/synth/gemm/cpu/dot_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/choose.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

graph::Type f32_type(std::vector<int64_t> dims) {
  graph::Type t;
  for (int64_t d : dims) t.shape.emplace_back(d);
  return t;
}

TEST(DotRows, FewRowsOfEveryAwkwardShape) {
  for (const char* name : {"avx512", "x86-64-v3", "neon"})
    for (int64_t rows : {1, 2, 5})
      for (int64_t n : {1, 3, 4, 11})
        for (int64_t k : {1, 7, 16, 37}) {
          graph::Graph g;
          graph::Builder build(g);
          const auto x = build.input("x", graph::Role::data, f32_type({rows, k}));
          const auto w = build.input("w", graph::Role::data, f32_type({n, k}));
          const auto bias = build.input("bias", graph::Role::data, f32_type({n}));
          g.results = {build.add(build.contract(x, w, "mk", "nk", "mn"), bias)};
          g.result_names = {"y"};
          const graph::Plan plan = dot_test::one_dot_group(g);
          const auto m = machine::find_machine(name);
          const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
          if (!synth::rows_possible(p)) continue;  // the longer side became n
          synth::Synthesis s;
          s.steps.push_back(synth::write_rows_kernel(plan.graph, p, synth::choose_rows(p, *m), *m));
          std::mt19937 random(9);
          std::map<std::string, graph::Tensor> inputs;
          for (auto v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
          const graph::Tensor want = graph::eval(g, inputs)[0];
          const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, *m));
          for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.values[i], 1e-5) << s.steps[0].plan;
        }
}

// Equal work has equal text and equal names, whatever the values' numbers in the graph.
TEST(DotRows, EqualWorkGivesEqualKernels) {
  auto kernel = [](bool ahead) {
    graph::Graph g;
    graph::Builder build(g);
    if (ahead) build.input("unused", graph::Role::data, f32_type({3}));
    const auto x = build.input("x", graph::Role::data, f32_type({1, 64}));
    const auto w = build.input("w", graph::Role::data, f32_type({8, 64}));
    g.results = {build.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"y"};
    const graph::Plan plan = dot_test::one_dot_group(g);
    return synth::synthesize_dot(plan, plan.groups[0], *machine::find_machine("avx512"), {}).steps[0].kernel.name;
  };
  EXPECT_EQ(kernel(false), kernel(true));
}

}  // namespace
}  // namespace lumen
