// needs: none. Products with a weight in registers equal the evaluator within what bf16 keeps: every kind of code,
// stages of a longer unit and units shorter than a stage, parts of K, rows and columns that do not exist, maps behind
// sums.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernel/synth/gemm/held/held.h"
#include "number/library/library.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

struct Case {
  const char* format;
  int64_t rows, columns, k;
  Scalar activations = Scalar::f32;
};

graph::Graph graph_of(const Case& c) {
  static const FormatLibrary library = FormatLibrary::builtin();
  graph::Graph g;
  graph::Builder build(g);
  const auto type = [](int64_t rows, int64_t columns, Scalar s) {
    graph::Type t;
    t.element.scalar = s;
    t.shape.emplace_back(rows);
    t.shape.emplace_back(columns);
    return t;
  };
  graph::Type weight = type(c.columns, c.k, Scalar::f32);
  weight.element = {Scalar::f32, library.find(c.format)};
  const graph::ValueId x = build.input("x", graph::Role::data, type(c.rows, c.k, c.activations));
  const graph::ValueId w = build.input("w", graph::Role::data, weight);
  graph::Type row;
  row.shape.emplace_back(c.columns);
  const graph::ValueId sums = build.contract(x, build.cast(w, {Scalar::f32, nullptr}), "mk", "nk", "mn");
  g.results = {build.unary(ScalarOp::tanh_, build.add(sums, build.input("bias", graph::Role::data, row)))};
  g.result_names = {"r"};
  return g;
}

// Of each shape of tile the best plan, in one part of K or as many as are wanted, each in slices.
void check(const Case& c, size_t most, bool in_parts, int64_t slices = 1) {
  const machine::MachineRef m = machine::find_machine("sm_90a");
  const graph::Plan plan = dot_test::one_dot_group(graph_of(c));
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  std::vector<synth::HeldPlan> plans = synth::choose_held(p, *m, false);
  ASSERT_FALSE(plans.empty()) << c.format;
  std::mt19937 random(7);
  std::map<std::string, graph::Tensor> inputs;
  for (const graph::ValueId v : plan.graph.inputs())
    inputs[plan.graph[v].attributes.name] = dot_test::random_tensor(plan.graph[v].type, random);
  const graph::Tensor want = graph::eval(plan.graph, inputs).at(0);
  std::set<std::pair<int64_t, int64_t>> seen;
  for (synth::HeldPlan& t : plans) {
    if (seen.size() == most || !seen.insert({t.tile.m(), t.tile.n()}).second) continue;
    t.slices = t.weights.slices = slices;
    const int64_t round = t.unrolled() * slices;
    t.split_stages = in_parts ? (t.stages / round + 1) / 2 * round : t.stages;
    ASSERT_EQ(t.stages % round, 0);
    t.splits = (t.stages + t.split_stages - 1) / t.split_stages;
    synth::Synthesis s;
    synth::write_held(plan.graph, p, t, *m, s);
    SCOPED_TRACE(std::string(c.format) + ": " + synth::describe(t, p));
    const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, *m));
    ASSERT_EQ(got.size(), want.values.size());
    const double tolerance = 4e-3 * std::sqrt(static_cast<double>(c.k)) + 1e-3;
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.values[i], tolerance) << "at " << i;
  }
}

TEST(HeldProduct, EveryKindOfCode) {
  // Codes at several places of a byte, with offsets, looked up in pairs, computed, of a whole byte, without a scale.
  for (const char* format : {"q4_0", "q4_1", "mxfp4", "q8_0", "fp8_e4m3"}) check({format, 40, 70, 128}, 1, false);
  for (const char* format : {"q4_k", "q6_k", "q5_k"}) check({format, 40, 70, 512}, 1, false);
  // A lane has more of a group than it makes at once.
  for (const char* format : {"int4_g128", "int2_g64", "int3_g128", "nf4"}) check({format, 40, 70, 512}, 1, false);
}

// Lanes of several tiles go through K at one time, and their sums are added.
TEST(HeldProduct, SlicesOfK) {
  check({"q4_k", 40, 70, 1024}, 1, false, 2);
  check({"q6_k", 40, 70, 1024}, 1, false, 4);
  check({"mxfp4", 70, 136, 1024}, 2, true, 2);
  check({"q4_0", 40, 72, 1536}, 1, true, 4);  // parts of different length
  // What the model chooses for few rows.
  const machine::MachineRef m = machine::find_machine("sm_90a");
  const graph::Plan plan = dot_test::one_dot_group(graph_of({"q4_k", 64, 4096, 4096}));
  EXPECT_GT(synth::choose_held(synth::normalise_dot(plan, plan.groups[0]), *m, false).at(0).slices, 1);
}

TEST(HeldProduct, TilesAndPartsOfK) {
  check({"q4_0", 70, 136, 256}, 2, true);
  check({"q4_k", 40, 72, 1024, Scalar::bf16}, 1, true);
}

}  // namespace
}  // namespace lumen
