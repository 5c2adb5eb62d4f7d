// needs: none. Dots along k for few rows, by the loop evaluator.
#include "kernel/synth/gemm/cpu/dot_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernel/loop/text.h"
#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/choose.h"
#include "number/library/library.h"
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

// Plans of few rows ask for a weight ahead of reading it, where it is too large to stay in a cache, as far as the
// machine says: every line of it once, but for those that steps along K share.
TEST(DotRows, LargeWeightsAreAskedForAhead) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto prefetches = [&](const char* format, machine::Machine m, std::string_view family, int64_t n) {
    graph::Graph g;
    graph::Builder build(g);
    const auto x = build.input("x", graph::Role::data, f32_type({1, 2048}));
    const FormatRef held = format ? library.find(format) : nullptr;
    auto w = build.input("w", graph::Role::parameter, dot_test::type_of({n, 2048}, held));
    if (held) w = build.cast(w, {Scalar::f32, nullptr});
    g.results = {build.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"y"};
    const auto s = dot_test::steps_of_family(dot_test::one_dot_group(g), m, {family});
    const std::string text = s ? loop::print(s->steps.back().kernel) : "none";
    int64_t count = s ? 0 : -1;
    for (size_t at = text.find("prefetch"); at != text.npos; at = text.find("prefetch", at + 1)) ++count;
    return count;
  };
  for (const char* name : {"amx", "x86-64-v3", "neon-dotprod"}) {
    machine::Machine m = *machine::find_machine(name);
    struct Case {
      const char *format, *family;
    };
    for (const Case& c : {Case{nullptr, "rows"}, Case{"f16", "rows"}, Case{"q4_0", "integer rows"},
                          Case{"q8_0", "integer rows"}, Case{"q6_k", "integer rows"}}) {
      SCOPED_TRACE(fmt::format("{} {}", name, c.format ? c.format : "f32"));
      m.ahead_bytes = 1024;
      EXPECT_GT(prefetches(c.format, m, c.family, 4096), 0);
      EXPECT_EQ(prefetches(c.format, m, c.family, 4), 0);
      m.ahead_bytes = 0;
      EXPECT_EQ(prefetches(c.format, m, c.family, 4096), 0);
    }
  }
  // Looking numbers up takes longer than fetching their codes.
  machine::Machine m = *machine::find_machine("amx");
  m.ahead_bytes = 1024;
  EXPECT_EQ(prefetches("nf4", m, "16-bit rows", 4096), 0);
}

// What is asked for lies the machine's distance ahead, and results are those without.
TEST(DotRows, AskingAheadChangesNoResult) {
  for (const char* format : {"f16", "q4_0"}) {
    graph::Graph g;
    graph::Builder build(g);
    const auto x = build.input("x", graph::Role::data, f32_type({1, 96}));
    const FormatRef held = FormatLibrary::builtin().find(format);
    const auto w = build.input("w", graph::Role::parameter, dot_test::type_of({24, 96}, held));
    g.results = {build.contract(x, build.cast(w, {Scalar::f32, nullptr}), "mk", "nk", "mn")};
    g.result_names = {"y"};
    const graph::Plan plan = dot_test::one_dot_group(g);
    machine::Machine m = *machine::find_machine("avx512-vnni");
    m.l2_bytes = 1024;  // which the weight exceeds
    std::mt19937 random(3);
    std::map<std::string, graph::Tensor> inputs;
    for (auto v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
    std::vector<dot_test::Bytes> results;
    for (const int64_t ahead : {0, 512, 1 << 20}) {
      m.ahead_bytes = ahead;
      const auto s = dot_test::steps_of_family(plan, m, {"rows"});
      ASSERT_TRUE(s);
      const std::string text = loop::print(s->steps.back().kernel);
      EXPECT_EQ(text.find("prefetch") != text.npos, ahead > 0);
      EXPECT_NE(text.find(fmt::format("constant i64 {}\n", ahead)), text.npos) << text;
      results.push_back(dot_test::run_evaluated(*s, plan, inputs, m));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

}  // namespace
}  // namespace lumen
