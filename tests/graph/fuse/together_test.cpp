// Needs: nothing. Groups that may run at one time stand side by side, and their values share no memory.
#include <gtest/gtest.h>

#include "graph/fuse/fuse.h"
#include "graph/ir/build.h"
#include "graph/pipeline/pipeline.h"

namespace lumen::graph {
namespace {

Type f32(Shape shape) {
  return {std::move(shape), {Scalar::f32, nullptr}};
}

// Products of one input, each with a map of its own kind behind it, and the sum of both: a, sin(a), b, cos(b), sum.
Graph two_ways(int64_t rows) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({rows, 64})), v = b.input("v", Role::parameter, f32({96, 64})),
                w = b.input("w", Role::parameter, f32({96, 64}));
  const ValueId first = b.contract(x, v, "mk", "nk", "mn");
  const ValueId mean = b.reduce(b.unary(ScalarOp::sin_, first), Reduction::sum, {1});
  const ValueId second = b.contract(x, w, "mk", "nk", "mn");
  const ValueId other = b.reduce(b.unary(ScalarOp::cos_, second), Reduction::sum, {1});
  g.results = {b.add(mean, other)};
  g.result_names = {"sum"};
  return g;
}

bool overlap(const MemoryPlan& memory, ValueId a, ValueId b) {
  const Slot &x = memory.slots[size_t(a)], &y = memory.slots[size_t(b)];
  return x.where == Slot::Where::arena && y.where == Slot::Where::arena && x.offset < y.offset + y.bytes &&
         y.offset < x.offset + x.bytes;
}

std::vector<size_t> products(const Plan& plan) {
  std::vector<size_t> out;
  for (size_t i = 0; i < plan.groups.size(); ++i)
    if (plan.groups[i].shape == KernelShape::dot) out.push_back(i);
  return out;
}

TEST(BringTogether, ProductsThatDoNotWaitForEachOther) {
  Pipeline pipeline{bring_together(fuse(two_ways(2))), {}};
  pipeline.memory = plan_memory(pipeline.plan);
  const Plan& plan = pipeline.plan;
  const std::vector<size_t> dots = products(plan);
  ASSERT_EQ(dots.size(), 2U);
  EXPECT_EQ(dots[1], dots[0] + 1);
  EXPECT_EQ(plan.groups[dots[1]].beside, 1);
  EXPECT_EQ(first_beside(plan, dots[1]), dots[0]);
  EXPECT_EQ(last_beside(plan, dots[0]), dots[1]);
  const ValueId a = plan.groups[dots[0]].results.at(0), b = plan.groups[dots[1]].results.at(0);
  EXPECT_FALSE(overlap(pipeline.memory, a, b));
  // Nothing that reads one comes before the other.
  for (size_t i = 0; i < dots[1]; ++i)
    for (const ValueId v : plan.groups[i].inputs) EXPECT_TRUE(v != a && v != b);
}

// Rows of two caches, each computed before it is written: the first update waits for the second one's row.
TEST(BringTogether, UpdatesOfTwoStates) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({1, 64}));
  const ValueId zero = b.constant({{}, {Scalar::i32, nullptr}}, {0}),
                at = b.input("at", Role::data, {{}, {Scalar::i32, nullptr}});
  std::vector<ValueId> caches;
  for (const char* name : {"keys", "values"}) {
    const ValueId w = b.input(std::string("w of ") + name, Role::parameter, f32({64, 64}));
    const ValueId sums = b.contract(x, w, "mk", "nk", "mn");
    const ValueId row = name[0] == 'k' ? b.unary(ScalarOp::sin_, sums) : b.unary(ScalarOp::cos_, sums);
    caches.push_back(b.update(b.input(name, Role::state, f32({16, 64})), b.reshape(row, {1, 64}), {at, zero}));
  }
  g.results = caches;
  g.result_names = {"k", "v"};
  const Plan plan = bring_together(fuse(g));
  int updates = 0, together = 0;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const bool is_update = plan.graph[plan.groups[i].results.at(0)].op == Op::update_;
    updates += is_update ? 1 : 0;
    together += is_update && plan.groups[i].beside == 1 ? 1 : 0;
    // What a group reads has been written.
    for (const ValueId v : plan.groups[i].inputs)
      for (size_t k = i; k < plan.groups.size(); ++k)
        for (const ValueId written : plan.groups[k].results) EXPECT_NE(v, written);
  }
  EXPECT_EQ(updates, 2);
  EXPECT_EQ(together, 1);
}

// A large weight decodes on the way: what counts are results.
TEST(BringTogether, ProductsOfLargeWeights) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({1, 2048}));
  for (const char* name : {"gate", "up"}) {
    g.results.push_back(b.contract(x, b.input(name, Role::parameter, f32({5632, 2048})), "mk", "nk", "mn"));
    g.result_names.push_back(std::string(name) + " x");
  }
  EXPECT_EQ(bring_together(fuse(g)).groups.at(1).beside, 1);
}

TEST(BringTogether, NotWhereOneReadsTheOther) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({2, 64})), w = b.input("w", Role::parameter, f32({64, 64}));
  const ValueId first = b.contract(x, w, "mk", "nk", "mn");
  g.results = {b.contract(first, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  for (const Group& group : bring_together(fuse(g)).groups) EXPECT_EQ(group.beside, 0);
}

// What reads the result of one of them dies with the last of them, or the other would write where it still reads.
TEST(BringTogether, ValuesLiveUntilTheLastOfThem) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, f32({2, 64}));
  std::vector<ValueId> sums;
  for (const char* name : {"u", "v", "w"}) {
    const ValueId weight = b.input(name, Role::parameter, f32({64, 64}));
    const ValueId own = b.unary(ScalarOp::exp_, b.contract(x, weight, "mk", "nk", "mn"));
    const ValueId again = b.input(std::string(name) + "2", Role::parameter, f32({64, 64}));
    sums.push_back(b.contract(own, again, "mk", "nk", "mn"));
  }
  g.results = {b.add(b.add(sums[0], sums[1]), sums[2])};
  g.result_names = {"y"};
  Pipeline pipeline{bring_together(fuse(g)), {}};
  pipeline.memory = plan_memory(pipeline.plan);
  const Plan& plan = pipeline.plan;
  size_t together = 0;
  for (size_t i = 0; i < plan.groups.size(); ++i)
    for (size_t k = first_beside(plan, i); k <= last_beside(plan, i); ++k) {
      together += k == i ? 0 : 1;
      for (const ValueId written : plan.groups[k].results) {
        for (const ValueId read : plan.groups[i].inputs) EXPECT_FALSE(overlap(pipeline.memory, read, written));
        if (k == i) continue;
        for (const ValueId other : plan.groups[i].results) EXPECT_FALSE(overlap(pipeline.memory, other, written));
      }
    }
  EXPECT_EQ(together, 6U);  // each of three has two others
}

// Where it would take more memory the plan is left as it was: fuse_test.cpp, FactorsOfSumsOverBatchesAreNotKept.

// Products that keep a device busy alone are left where they are.
TEST(BringTogether, NotWhatIsLarge) {
  for (const Group& group : bring_together(fuse(two_ways(20000))).groups) EXPECT_EQ(group.beside, 0);
}

}  // namespace
}  // namespace lumen::graph
