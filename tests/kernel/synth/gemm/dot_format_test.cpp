// needs: none. Dots with a weight in every format of the library, in f32: forward by rows and by tiles, and backward
// (contracting over the weight's rows), against the graph's own evaluation.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernel/synth/dot.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using dot_test::type_of;
using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::ValueId;

Graph product(const FormatRef& f, int64_t rows, int64_t columns, std::vector<int64_t> x, const std::string& ix,
              const std::string& ir) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("x", Role::data, type_of(std::move(x)));
  const ValueId w = build.cast(build.input("w", Role::parameter, type_of({rows, columns}, f)), {Scalar::f32, nullptr});
  g.results = {build.contract(a, w, ix, "nk", ir)};
  g.result_names = {"y"};
  return g;
}

void expect_close(const Graph& g, const machine::Machine& m, const std::string& what, const std::string& path) {
  std::mt19937 random(17);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs)[0];
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], m, {.exact = true});
  EXPECT_NE(s.steps[0].plan.find(path), std::string::npos) << s.steps[0].plan;
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, m));
  ASSERT_EQ(got.size(), want.values.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want.values[i], 2e-5 * (1 + std::abs(want.values[i])))
        << what << " " << s.steps[0].plan << " at " << i;
}

// Two blocks and a little more than a register of columns.
int64_t columns_for(const Format& f) {
  return f.block * std::max<int64_t>(2, (40 + f.block - 1) / f.block);
}

TEST(DotFormat, EveryFormatForwardAndBackward) {
  const FormatLibrary library = FormatLibrary::builtin();
  const auto wide = machine::find_machine("avx512"), narrow = machine::find_machine("neon");
  int tried = 0;
  for (const FormatRef& f : library.all()) {
    if (!f->encodes()) continue;
    ++tried;
    const int64_t k = columns_for(*f);
    for (const auto& m : {wide, narrow}) {
      if (m == narrow && tried % 4 != 0) continue;
      expect_close(product(f, 5, k, {1, k}, "mk", "mn"), *m, f->name, "rows");
      expect_close(product(f, 18, k, {9, k}, "mk", "mn"), *m, f->name, "tile");
      expect_close(product(f, 7, k, {9, 7}, "mn", "mk"), *m, f->name, "b copy");
    }
  }
  EXPECT_GE(tried, 20);
}

TEST(DotFormat, WeightOnEitherSideAndThroughViews) {
  const FormatRef f = FormatLibrary::builtin().find("q4_0");
  ASSERT_TRUE(f);
  const auto m = machine::find_machine("avx512");
  // The result is stored along the weight's columns or its rows, so the weight is the vector or the broadcast side.
  expect_close(product(f, 20, 64, {33, 64}, "mk", "nm"), *m, "weight broadcast", "a copy");
  expect_close(product(f, 20, 64, {20, 33}, "nm", "km"), *m, "weight broadcast along its columns", "a copy");
  // A slice of whole rows, and a head's worth of columns.
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, type_of({7, 32}));
  ValueId w = build.cast(build.input("w", Role::parameter, type_of({24, 96}, f)), {Scalar::f32, nullptr});
  w = build.slice(build.reshape(w, {24, 3, 32}), {4, 1, 0}, {17, 2, 32});
  g.results = {build.contract(x, w, "mk", "nhk", "mnh")};
  g.result_names = {"y"};
  expect_close(g, *m, "slice", "");
  // Columns that cut blocks are read one by one.
  Graph h;
  Builder cut(h);
  const ValueId x2 = cut.input("x", Role::data, type_of({7, 20}));
  ValueId w2 = cut.cast(cut.input("w", Role::parameter, type_of({9, 64}, f)), {Scalar::f32, nullptr});
  w2 = cut.slice(w2, {0, 3}, {9, 20});
  h.results = {cut.contract(x2, w2, "mk", "nk", "mn")};
  h.result_names = {"y"};
  expect_close(h, *m, "cut blocks", "gather");
}

}  // namespace
}  // namespace lumen
