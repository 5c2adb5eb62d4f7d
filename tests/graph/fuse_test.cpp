// Needs: none. What becomes one kernel: the shapes of groups of a transformer, in inference and in training.
#include <gtest/gtest.h>

#include <algorithm>

#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"
#include "plan_run.h"

namespace lumen::graph {
namespace {

std::string shapes(const Plan& plan) {
  std::string text;
  for (const Group& g : plan.groups) {
    constexpr const char* kNames[] = {"map", "reduce", "dot", "attend", "attend_gradient", "move"};
    text += (text.empty() ? "" : " ") + std::string(kNames[static_cast<int>(g.shape)]);
  }
  return text;
}

void expect_equal_run(const Graph& g, const Pipeline& p, const std::map<std::string, Tensor>& in) {
  std::map<std::string, Tensor> states;
  const auto expected = eval(g, in, {}, &states);
  const PlanRun run = run_plan(p.plan, p.memory, in);
  ASSERT_EQ(run.wrong, "") << print(p.plan.graph);
  for (size_t r = 0; r < expected.size(); ++r) EXPECT_EQ(run.results[r].values, expected[r].values);
  for (const auto& [name, t] : states) EXPECT_EQ(run.states.at(name).values, t.values) << name;
}

TEST(Fuse, ATransformerBlockIsTwelveKernels) {
  Graph g;
  Builder b(g);
  ValueId logits = -1;
  transformer(b, {}, &logits);
  g.results = {logits};
  g.result_names = {"logits"};
  const Pipeline p = run_pipeline(g, {}, {});
  // embedding; norm, q, k, v, attention, output + residual; norm, up, gate * silu, down + residual; logits
  EXPECT_EQ(shapes(p.plan), "move reduce dot dot dot attend dot reduce dot dot dot dot");
  expect_equal_run(g, p, random_inputs(g, 4, 11));
}

// One step of gradient descent with momentum on every parameter.
Graph training_step() {
  Graph g;
  Builder b(g);
  const ValueId loss = transformer(b, {});
  std::vector<ValueId> parameters;
  for (ValueId v : g.inputs()) {
    if (g[v].attributes.role == Role::parameter) parameters.push_back(v);
  }
  const std::vector<ValueId> gradients = differentiate(g, loss, parameters);
  for (size_t k = 0; k < parameters.size(); ++k) {
    const ValueId m = b.input("m" + std::to_string(k), Role::state, b.type(parameters[k]));
    const ValueId next = b.add(b.mul(m, b.scalar(0.875)), gradients[k]);
    b.update(m, next);
    b.update(parameters[k], b.sub(parameters[k], b.mul(next, b.scalar(0.125))));
  }
  g.results = {loss};
  g.result_names = {"loss"};
  return g;
}

TEST(Fuse, ATrainingStepWritesParametersInPlace) {
  const Graph g = training_step();
  const Pipeline p = run_pipeline(g, {}, {});
  expect_equal_run(g, p, random_inputs(g, 5, 11));
  size_t in_place = 0, moves = 0;
  for (const Group& group : p.plan.groups) {
    for (ValueId r : group.results) {
      if (p.plan.graph[r].op != Op::update_) continue;
      EXPECT_EQ(group.shape, KernelShape::map);
      EXPECT_EQ(p.memory.slots[r].where, Slot::Where::external);
      ++in_place;
    }
    moves += group.shape == KernelShape::move ? 1 : 0;
  }
  EXPECT_EQ(in_place, 2 * 10u);
  EXPECT_EQ(moves, 2u) << "gather and scatter_add of the embedding";
}

TEST(Fuse, ProductsTakeTheAxesOfWhatFollows) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{2, 3, 8}, kFloat}), w = b.input("w", Role::parameter, {{4, 8}, kFloat});
  const ValueId r = b.input("r", Role::data, {{2, 3, 4}, kFloat});
  const ValueId y = b.contract(b.reshape(x, {6, 8}), w, "mk", "nk", "mn");
  g.results = {b.add(r, b.reshape(y, {2, 3, 4}))};
  g.result_names = {"y"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_EQ(shapes(p.plan), "dot") << print(p.plan.graph);
  expect_equal_run(g, p, random_inputs(g, 6, 2));
}

TEST(Fuse, InterleavingIsOneMap) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{3, 4, 2}, kFloat}), c = b.input("c", Role::data, {{4, 1}, kFloat});
  const ValueId even = b.slice(x, {0, 0, 0}, {3, 4, 1}), odd = b.slice(x, {0, 0, 1}, {3, 4, 1});
  g.results = {b.concat({b.sub(b.mul(even, c), odd), b.add(even, b.mul(odd, c))}, 2)};
  g.result_names = {"turned"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_EQ(shapes(p.plan), "map") << print(p.plan.graph);
  expect_equal_run(g, p, random_inputs(g, 7, 2));
}

// A product over windows has the zeros around its image; its epilogue comes along.
TEST(Fuse, ProductsOverWindowsHaveTheZerosAroundThem) {
  Graph g;
  Builder b(g);
  const Element half{Scalar::bf16, nullptr};
  const ValueId x = b.input("x", Role::data, {{2, 6}, half}), w = b.input("w", Role::parameter, {{4, 3}, half});
  const ValueId c = b.input("c", Role::parameter, {{4}, kFloat});
  const ValueId seen = b.windows(b.pad(x, {2, 8}, {0, 1}), {0, 0}, {1, 0, 0, 0, 1, 1}, {2, 6, 3});
  g.results = {b.add(b.contract(seen, w, "nmk", "ok", "nmo"), c)};
  g.result_names = {"y"};
  const Pipeline p = plan_graph(g);
  ASSERT_EQ(p.plan.groups.size(), 1U);
  EXPECT_EQ(p.plan.groups[0].shape, KernelShape::dot);
  expect_equal_run(g, p, random_inputs(g, 8, 2));
}

TEST(Fuse, LongRowsAndFewRowsAreNotRowKernels) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{70000}, kFloat});
  const ValueId norm = b.reduce(b.mul(x, x), Reduction::sum, {0});
  g.results = {b.div(x, norm)};  // one row of 70000: the division must not run row by row
  g.result_names = {"y"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_EQ(shapes(p.plan), "reduce map");
}

TEST(Memory, ValuesThatDoNotLiveTogetherShareBytes) {
  Graph g;
  Builder b(g);
  ValueId x = b.input("x", Role::data, {{64, 64}, kFloat});
  const ValueId w = b.input("w", Role::parameter, {{64, 64}, kFloat});
  for (int k = 0; k < 10; ++k) x = b.contract(x, w, "mk", "nk", "mn");
  g.results = {x};
  g.result_names = {"y"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_EQ(p.memory.arena_bytes, 2 * 64 * 64 * 4);
}

// Gradients that are added to sums of batches: the sums are written at the end, the products need not wait for that.
TEST(Memory, FactorsOfSumsOverBatchesAreNotKept) {
  constexpr int kProducts = 8;
  Graph g;
  Builder b(g);
  std::vector<ValueId> products;
  for (int k = 0; k < kProducts; ++k) {
    const ValueId x = b.input("x" + std::to_string(k), Role::data, {{64, 64}, kFloat});
    const ValueId factor = b.unary(ScalarOp::tanh_, x);
    products.push_back(b.contract(factor, factor, "km", "kn", "mn"));
  }
  for (int k = 0; k < kProducts; ++k) {
    const ValueId sum = b.input("sum" + std::to_string(k), Role::state, {{64, 64}, kFloat});
    b.update(sum, b.add(sum, b.mul(products[k], b.scalar(0.5))));
  }
  g.results = {b.scalar(0.0)};
  g.result_names = {"nothing"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_LE(p.memory.arena_bytes, 3 * 64 * 64 * 4) << "a factor and a product, not all factors";
}

TEST(Memory, SlotsOfATrainingStepNeverOverlapAlive) {
  const Graph g = training_step();
  const Pipeline p = run_pipeline(g, {}, {});
  const auto count = static_cast<ValueId>(p.plan.graph.nodes.size());
  std::vector<int> first(count, -1), last(count, -1);
  for (int k = 0; k < static_cast<int>(p.plan.groups.size()); ++k) {
    for (ValueId v : p.plan.groups[k].results) first[v] = last[v] = k;
    for (ValueId v : p.plan.groups[k].inputs) last[v] = k;
  }
  for (ValueId r : p.plan.graph.results) last[r] = static_cast<int>(p.plan.groups.size());
  int64_t sum = 0;
  for (ValueId a = 0; a < count; ++a) {
    const Slot& sa = p.memory.slots[a];
    if (sa.where != Slot::Where::arena) continue;
    sum += sa.bytes;
    for (ValueId c = 0; c < a; ++c) {
      const Slot& sc = p.memory.slots[c];
      if (sc.where != Slot::Where::arena || last[c] < first[a] || last[a] < first[c]) continue;
      EXPECT_TRUE(sa.offset + sa.bytes <= sc.offset || sc.offset + sc.bytes <= sa.offset) << a << " and " << c;
    }
  }
  EXPECT_LT(p.memory.arena_bytes, sum);
}

// What a recipe with scales of earlier steps makes of an operand: codes both ways, and the largest number for the next
// step, which a state keeps. One group reads what the gate reads, and nothing is written but codes.
TEST(Fuse, CodesAndTheirLargestAreOneKernel) {
  Graph g;
  Builder b(g);
  const FormatRef codes = FormatLibrary::builtin().get("fp8_e4m3");
  const auto in = [&](const char* name, const Shape& shape, Scalar s) {
    return b.input(name, Role::data, {shape, {s, nullptr}});
  };
  const ValueId gate = b.convert(in("gate", {4, 8, 32}, Scalar::bf16), Scalar::f32);
  const ValueId up = b.convert(in("up", {4, 8, 32}, Scalar::bf16), Scalar::f32);
  const ValueId x = b.convert(b.mul(b.unary(ScalarOp::tanh_, gate), up), Scalar::bf16);
  const ValueId wide = b.convert(x, Scalar::f32);
  const ValueId largest = b.reduce(b.unary(ScalarOp::abs_, wide), Reduction::max, {2});
  const ValueId history = b.input("history", Role::state, {{1}, kFloat});
  b.update(history, b.reshape(b.reduce(largest, Reduction::max, {0, 1, 2}), {1}));
  const ValueId matrix = b.reshape(wide, {32, 32});
  g.results = {b.cast(matrix, {Scalar::f32, codes}), b.cast(b.permute(matrix, {1, 0}), {Scalar::f32, codes})};
  g.result_names = {"codes", "transposed"};
  const Pipeline p = run_pipeline(g, {}, {});
  EXPECT_EQ(shapes(p.plan), "move move") << print(p.plan.graph);  // the second one writes the state
  expect_equal_run(g, p, random_inputs(g, 4, 11));
}

}  // namespace
}  // namespace lumen::graph
