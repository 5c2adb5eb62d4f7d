// needs: none. Tiled dots of every index order against the graph's own evaluation, by the loop evaluator.
#include "kernel/synth/gemm/cpu/dot_tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "kernel/synth/dot.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/dot_parts.h"
#include "tests/kernel/synth/gemm/dot_harness.h"

namespace lumen {
namespace {

using graph::Builder;
using graph::Graph;
using graph::Role;
using graph::Type;
using graph::ValueId;

Type f32_type(std::vector<int64_t> dims) {
  Type t;
  for (int64_t d : dims) t.shape.emplace_back(d);
  return t;
}

void expect_close(const Graph& g, const std::string& machine, unsigned seed, double tolerance = 1e-5) {
  std::mt19937 random(seed);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs)[0];
  const auto m = machine::find_machine(machine);
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::Synthesis s = synth::synthesize_dot(plan, plan.groups[0], *m, {.exact = true});
  const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, *m));
  ASSERT_EQ(got.size(), want.values.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want.values[i], tolerance * (1 + std::abs(want.values[i]))) << s.steps[0].plan << " at " << i;
}

Graph contract_graph(std::vector<int64_t> a, std::vector<int64_t> b, const std::string& ia, const std::string& ib,
                     const std::string& ir) {
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, f32_type(a)), y = build.input("y", Role::data, f32_type(b));
  g.results = {build.contract(x, y, ia, ib, ir)};
  g.result_names = {"r"};
  return g;
}

TEST(DotTile, EveryOrderOfTheIndices) {
  const std::vector<std::string> left{"mk", "km"}, right{"nk", "kn"}, result{"mn", "nm"};
  for (const std::string& ia : left)
    for (const std::string& ib : right)
      for (const std::string& ir : result)
        for (const char* machine : {"avx512", "x86-64-v3", "neon"}) {
          auto dims = [](const std::string& i) {
            std::vector<int64_t> d;
            for (char c : i) d.push_back(c == 'm' ? 13 : c == 'n' ? 37 : 19);
            return d;
          };
          expect_close(contract_graph(dims(ia), dims(ib), ia, ib, ir), machine, 7);
        }
}

TEST(DotTile, AwkwardExtents) {
  unsigned seed = 1;
  for (int64_t m : {1, 2, 7, 16, 31})
    for (int64_t n : {1, 3, 16, 17, 50})
      for (int64_t k : {1, 2, 5, 16, 33})
        expect_close(contract_graph({m, k}, {n, k}, "mk", "nk", "mn"), ++seed % 2 ? "avx512" : "x86-64-v3", 5);
}

TEST(DotTile, BatchesThroughPermutedViews) {
  // Attention's shapes: [b, t, h, d] seen as [b, h, t, d].
  Graph g;
  Builder build(g);
  const ValueId q = build.input("q", Role::data, f32_type({2, 9, 3, 8}));
  const ValueId k = build.input("k", Role::data, f32_type({2, 11, 24}));
  const ValueId heads = build.permute(build.reshape(k, {2, 11, 3, 8}), {0, 2, 1, 3});
  g.results = {build.contract(build.permute(q, {0, 2, 1, 3}), heads, "bhtd", "bhsd", "bhts")};
  g.result_names = {"s"};
  expect_close(g, "avx512", 3);
}

TEST(DotTile, SumsOverSeveralIndices) {
  Graph g;
  Builder build(g);
  const ValueId x = build.permute(build.input("x", Role::data, f32_type({3, 4, 17, 6})), {0, 2, 1, 3});
  const ValueId w = build.input("w", Role::data, f32_type({3, 17, 21}));
  g.results = {build.contract(x, w, "bthd", "bto", "hdo")};
  g.result_names = {"dw"};
  expect_close(g, "avx512", 5);
}

TEST(DotTile, EpilogueReadsBiasResidualAndScalar) {
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, f32_type({10, 20})),
                w = build.input("w", Role::data, f32_type({35, 20}));
  const ValueId bias = build.input("bias", Role::parameter, f32_type({35}));
  const ValueId residual = build.input("residual", Role::data, f32_type({10, 35}));
  const ValueId column = build.input("column", Role::data, f32_type({10, 1}));
  ValueId y = build.add(build.contract(x, w, "mk", "nk", "mn"), bias);
  y = build.mul(build.unary(ScalarOp::tanh_, y), column);
  g.results = {build.add(build.mul(y, build.scalar(0.5)), residual)};
  g.result_names = {"y"};
  expect_close(g, "avx512", 11);
  expect_close(g, "neon", 12);
}

TEST(DotTile, LongSumsAreCutIntoStages) {
  expect_close(contract_graph({20, 5000}, {70, 5000}, "mk", "nk", "mn"), "avx512", 13, 1e-4);
  expect_close(contract_graph({3001, 20}, {3001, 70}, "km", "kn", "mn"), "x86-64-v3", 14, 1e-4);
}

// Whatever the cost model would prefer: every way of reading operands, with and without stages of K, over several outer
// and inner indices.
TEST(DotTile, EveryWayOfReadingOperands) {
  Graph g;
  Builder build(g);
  // Of the axis b three of four are read, so that a and b are no single index.
  const ValueId all = build.input("x", Role::data, f32_type({2, 4, 4, 11, 19}));
  const ValueId x = build.permute(build.slice(all, {0, 1, 0, 0, 0}, {2, 3, 4, 11, 19}), {0, 1, 3, 2, 4});  // a b t h d
  const ValueId w = build.input("w", Role::data, f32_type({2, 3, 11, 21}));
  g.results = {build.contract(x, w, "abthd", "abto", "hdo")};
  g.result_names = {"dw"};
  std::mt19937 random(31);
  std::map<std::string, graph::Tensor> inputs;
  for (ValueId v : g.inputs()) inputs[g[v].attributes.name] = dot_test::random_tensor(g[v].type, random);
  const graph::Tensor want = graph::eval(g, inputs)[0];
  const auto m = machine::find_machine("x86-64-v3");
  const graph::Plan plan = dot_test::one_dot_group(g);
  const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
  ASSERT_EQ(p.outer_k.size(), 2U);
  ASSERT_EQ(p.m.strides[0], 1);
  ASSERT_EQ(p.outer.back().extent, 4);
  ASSERT_EQ(p.outer.back().strides[1], 0);
  synth::TilePlan t = synth::choose_tiles(p, *m).front();
  const int64_t whole = p.k.extent;
  for (synth::Fetch a : {synth::Fetch::direct, synth::Fetch::copy, synth::Fetch::gather, synth::Fetch::tiles})
    for (synth::Fetch b : {synth::Fetch::direct, synth::Fetch::copy, synth::Fetch::gather})
      for (const auto& [stage, digits] :
           {std::pair(whole, size_t{2}), {whole, 1}, {whole, 0}, {(whole + 1) / 2, 0}, {5, 0}}) {
        t.a = a;
        t.b = b;
        t.a_along_k = false;
        t.stage_k = stage;
        t.stage_digits = digits;
        t.stages = (whole + stage - 1) / stage;
        for (size_t d = 0; d + digits < p.outer_k.size(); ++d) t.stages *= p.outer_k[d].extent;
        // Several outer indices share a panel of b where K is not cut.
        for (t.outer_task = 1; t.outer_task <= (t.stages == 1 ? 4 : 1); t.outer_task += 3) {
          synth::Synthesis s;
          synth::write_tile_kernels(plan.graph, p, t, s);
          const std::vector<float> got = dot_test::floats_of(dot_test::run_evaluated(s, plan, inputs, *m));
          for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.values[i], 1e-4) << s.steps.back().plan;
        }
      }
}

// A depthwise convolution and its weight's gradient: each channel is a small product of its own.
TEST(DotTile, VectorsAlongABatch) {
  for (const char* machine : {"avx512", "x86-64-v3", "neon"})
    for (const int64_t channels : {8, 37, 64}) {
      const Graph forward = contract_graph({9, 5, channels}, {5, channels}, "tkg", "kg", "tg");
      const Graph gradient = contract_graph({19, channels}, {19, 5, channels}, "tg", "tkg", "kg");
      for (const Graph* g : {&forward, &gradient}) {
        const graph::Plan plan = dot_test::one_dot_group(*g);
        const auto along = synth::normalise_dot(plan, plan.groups[0]).along_batch();
        ASSERT_TRUE(along);
        EXPECT_EQ(along->n.extent, channels);
        const auto m = machine::find_machine(machine);
        const std::string text = synth::synthesize_dot(plan, plan.groups[0], *m, {}).steps.back().plan;
        EXPECT_NE(text.find("dot along a batch"), std::string::npos) << machine << " " << text;
        expect_close(*g, machine, 3);
      }
    }
  // Several columns beside several rows are a product like any other.
  const graph::Plan plan = dot_test::one_dot_group(contract_graph({9, 5, 16}, {5, 4, 16}, "tkg", "kog", "tog"));
  EXPECT_FALSE(synth::normalise_dot(plan, plan.groups[0]).along_batch());
}

// Tiles that would read much of their operands from memory, each anew, go over K in stages that a cache holds; and what
// follows each other in memory is read in place, where processors fetch it ahead.
TEST(DotChoose, WhatIsReadInPlaceStaysNear) {
  const auto m = machine::find_machine("x86-64-v3");
  for (const int64_t outer : {1, 64}) {
    Graph g;
    Builder build(g);
    const ValueId x =
        build.slice(build.input("x", Role::data, f32_type({outer, 1026, 16})), {0, 1, 0}, {outer, 1024, 16});
    const ValueId y = build.input("y", Role::data, f32_type({outer, 1024, 48}));
    g.results = {build.contract(x, y, "bki", "bko", "io")};
    g.result_names = {"r"};
    const graph::Plan plan = dot_test::one_dot_group(g);
    const synth::DotProblem whole = synth::normalise_dot(plan, plan.groups[0]);
    const synth::DotProblem p = outer == 1 ? whole : synth::in_parts(whole, 4, 0);
    const synth::TilePlan t = synth::choose_tiles(p, *m).front();
    EXPECT_EQ(t.stages > 1, outer > 1) << synth::describe(t);
    EXPECT_TRUE(t.a == synth::Fetch::direct && t.b == synth::Fetch::direct) << synth::describe(t);
    if (outer == 1) continue;
    int64_t held = t.stage_k;
    for (size_t d = p.outer_k.size() - t.stage_digits; d < p.outer_k.size(); ++d) held *= p.outer_k[d].extent;
    EXPECT_LE(held * (t.m_task * t.height + t.n_task * t.vectors * t.lanes) * 4, m->l2_bytes / 2);
    EXPECT_GE(held * t.stages, p.k_total());
  }
}

// Tiles and tasks leave nothing out, and a tile fits the registers.
TEST(DotChoose, TilesCoverTheProblem) {
  for (const char* name : {"avx512", "x86-64-v3", "neon"})
    for (int64_t m : {1, 13, 64, 768})
      for (int64_t n : {1, 17, 65, 384}) {
        const Graph g = contract_graph({m, 40}, {n, 40}, "mk", "nk", "mn");
        const graph::Plan plan = dot_test::one_dot_group(g);
        const auto target = machine::find_machine(name);
        const synth::DotProblem p = synth::normalise_dot(plan, plan.groups[0]);
        const synth::TilePlan t = synth::choose_tiles(p, *target).front();
        EXPECT_EQ((t.m_tiles - 1) * t.height + t.last_height, p.m.extent);
        EXPECT_EQ((t.n_tiles - 1) * t.vectors + t.last_vectors, (p.n.extent + t.lanes - 1) / t.lanes);
        EXPECT_GE(t.m_task * t.m_tasks, t.m_tiles);
        EXPECT_GE(t.n_task * t.n_tasks, t.n_tiles);
        EXPECT_LE(t.height * t.vectors + t.vectors + 1, target->vector_registers);
      }
}

}  // namespace
}  // namespace lumen
