// Needs: cpu. Equal groups are synthesized once; groups that differ in anything that matters are not taken for each
// other.
#include "run/engine/compile/repeat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "graph/match/access.h"
#include "graph/pipeline/pipeline.h"
#include "kernel/loop/text.h"
#include "run/engine/compile/compile.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;

std::string meaning(const std::function<graph::ValueId(graph::Builder&)>& build) {
  graph::Graph g;
  graph::Builder b(g);
  g.results = {build(b)};
  g.result_names = {"r"};
  const graph::Pipeline p = graph::run_pipeline(g, {}, {});
  return form_of(p.plan.graph, p.plan.groups.back(), values_of(p.plan.graph)).meaning;
}

TEST(Repeat, WhatMattersTellsGroupsApart) {
  const auto in = [](graph::Builder& b, const char* name, std::vector<int64_t> dims) {
    return b.input(name, Role::data, f32(std::move(dims)));
  };
  std::set<std::string> seen;
  const auto add = [&](const std::function<graph::ValueId(graph::Builder&)>& build) {
    EXPECT_TRUE(seen.insert(meaning(build)).second);
  };
  add([&](graph::Builder& b) { return b.add(in(b, "x", {4, 8}), in(b, "y", {4, 8})); });
  add([&](graph::Builder& b) { return b.sub(in(b, "x", {4, 8}), in(b, "y", {4, 8})); });
  add([&](graph::Builder& b) { return b.add(in(b, "x", {4, 8}), in(b, "y", {1, 8})); });
  add([&](graph::Builder& b) { return b.add(in(b, "x", {8, 8}), in(b, "y", {8, 8})); });
  add([&](graph::Builder& b) { return b.add(in(b, "x", {4, 8}), b.scalar(2)); });
  add([&](graph::Builder& b) { return b.add(in(b, "x", {4, 8}), b.scalar(3)); });
  add([&](graph::Builder& b) { return b.reduce(in(b, "x", {4, 8}), graph::Reduction::sum, {1}); });
  add([&](graph::Builder& b) { return b.reduce(in(b, "x", {4, 8}), graph::Reduction::max, {1}); });
  add([&](graph::Builder& b) { return b.reduce(in(b, "x", {4, 8}), graph::Reduction::sum, {0}); });
  add([&](graph::Builder& b) {
    const auto x = in(b, "x", {4, 8});
    return b.add(x, b.unary(ScalarOp::neg_, x));
  });
}

// Kernels may copy a parameter that nothing writes before those before have ended.
TEST(Repeat, UpdatedParametersTellGroupsApart) {
  std::set<std::string> seen;
  for (const bool updates : {false, true}) {
    graph::Graph g;
    graph::Builder b(g);
    const auto x = b.input("x", Role::data, f32({4, 8})), w = b.input("w", Role::parameter, f32({8, 8}));
    g.results = {b.contract(x, w, "mk", "nk", "mn")};
    g.result_names = {"r"};
    if (updates) {
      g.results.push_back(b.update(w, b.unary(ScalarOp::neg_, w)));
      g.result_names.push_back("w");
    }
    const graph::Pipeline p = graph::run_pipeline(g, {}, {});
    for (const graph::Group& group : p.plan.groups)
      if (group.shape == graph::KernelShape::dot)
        seen.insert(form_of(p.plan.graph, group, values_of(p.plan.graph)).meaning);
  }
  EXPECT_EQ(seen.size(), 2U);
}

// .. and may read it as constant memory there, which what another kernel writes never is.
TEST(Repeat, OnlyUnwrittenParametersAreConstant) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({4, 64})), w = b.input("w", Role::parameter, f32({64}));
  const auto y = b.unary(ScalarOp::tanh_, b.reduce(x, graph::Reduction::sum, {1}));
  g.results = {b.mul(w, b.reduce(y, graph::Reduction::max, {0}))};
  g.result_names = {"r"};
  for (const char* name : {"sm_90a", "sm_80", "gfx942"}) {
    const auto m = machine::find_machine(name);
    const graph::Pipeline p = graph::run_pipeline(g, {}, {});
    const DistinctKernels kernels = synthesize_distinct(p.plan, *m, {});
    int constants = 0, others = 0;
    for (size_t i = 0; i < kernels.distinct.size(); ++i)
      for (const synth::Step& step : kernels.distinct[i].steps)
        for (size_t a = 0; a < step.arguments.size(); ++a) {
          if (step.kernel.params[a].written) continue;
          const bool is_weight = step.arguments[a].from == synth::Argument::From::value &&
                                 kernels.groups[kernels.first[i]].values[step.arguments[a].index] == w;
          EXPECT_EQ(step.kernel.params[a].constant, is_weight && m->follows) << name << step.kernel.name;
          ++(is_weight ? constants : others);
        }
    EXPECT_GT(constants, 0) << name;
    EXPECT_GT(others, 1) << name;
  }
}

// Each layer's numbers lie in one state for all layers.
TEST(Repeat, LayersOfOneStateShareKernels) {
  constexpr int64_t layers = 4, rows = 8, columns = 32;
  graph::Graph g;
  graph::Builder b(g);
  auto state = b.input("state", Role::state, f32({layers, rows, columns}));
  const auto x = b.input("x", Role::data, f32({1, 2, columns}));
  const auto row = b.input("row", Role::data, {{}, {Scalar::i32, nullptr}}), zero = b.scalar(0, Scalar::i32);
  for (int layer = 0; layer < layers; ++layer)
    state = b.update(state, b.mul(x, b.scalar(layer + 2)), {b.scalar(layer, Scalar::i32), row, zero});
  g.results = {state};
  g.result_names = {"state"};
  const graph::Pipeline p = graph::run_pipeline(g, {}, {});
  const DistinctKernels kernels = synthesize_distinct(p.plan, *machine::native_machine(), {});
  std::set<std::string> updates;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < p.plan.groups.size(); ++i) {
    if (p.plan.groups[i].root < 0 || p.plan.graph[p.plan.groups[i].root].op != graph::Op::update_) continue;
    updates.insert(kernels.distinct[kernels.groups[i].which].hash);
    offsets.push_back(*std::ranges::max_element(kernels.groups[i].offsets));
  }
  EXPECT_EQ(updates.size(), 1U);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, rows * columns * 4, 2 * rows * columns * 4, 3 * rows * columns * 4}));

  Engine engine(options());
  auto inputs = random_inputs(g, 21);
  inputs.at("row").values = {5};
  const auto program = run_once(engine, g, inputs);
  std::map<std::string, graph::Tensor> states;
  (void)graph::eval(g, inputs, {}, &states);
  expect_near(floats_of(program->result("state")), states.at("state").values, 0);
}

TEST(Repeat, LayersShareKernels) {
  graph::Graph g;
  graph::Builder b(g);
  auto x = b.input("x", Role::data, f32({6, 32}));
  for (int layer = 0; layer < 5; ++layer) {
    const auto w = b.input("w" + std::to_string(layer), Role::parameter, f32({32, 32}));
    x = b.unary(ScalarOp::tanh_, b.contract(x, w, "mk", "nk", "mn"));
  }
  g.results = {x};
  g.result_names = {"r"};
  const graph::Pipeline p = graph::run_pipeline(g, {}, {});
  ASSERT_EQ(p.plan.groups.size(), 5U);
  const DistinctKernels kernels = synthesize_distinct(p.plan, *machine::native_machine(), {});
  EXPECT_EQ(kernels.distinct.size(), 2U);  // the first layer reads an input, the others what a kernel wrote
  EXPECT_EQ(kernels.groups.size(), 5U);
  const DistinctKernels by_many =
      synthesize_distinct(p.plan, *machine::native_machine(), {}, values_of(p.plan.graph), 3);
  ASSERT_EQ(by_many.distinct.size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(by_many.distinct[i].hash, kernels.distinct[i].hash);
  for (const Synthesized& one : kernels.distinct) {
    ASSERT_EQ(one.texts.size(), one.steps.size());
    std::string all;
    for (size_t i = 0; i < one.steps.size(); ++i) {
      EXPECT_EQ(one.texts[i], loop::print(one.steps[i].kernel));
      all += one.texts[i];
      loop::Kernel other = one.steps[i].kernel;
      other.name = "a \"name\" (@0";
      EXPECT_EQ(loop::without_name(other, loop::print(other)), loop::without_name(one.steps[i].kernel, one.texts[i]));
    }
    EXPECT_EQ(one.hash, hash_text(all).hex());
  }

  Engine engine(options());
  const auto inputs = random_inputs(g, 20);
  expect_near(floats_of(run_once(engine, g, inputs)->result("r")), graph::eval(g, inputs)[0].values, 1e-4);
}

}  // namespace
}  // namespace lumen::run
