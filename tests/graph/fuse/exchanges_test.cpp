// Needs: nothing. What is computed beside exchanges with other ranks.
#include <gtest/gtest.h>

#include "graph/fuse/fuse.h"
#include "graph/ir/build.h"
#include "graph/partition/partition.h"
#include "graph/pipeline/pipeline.h"
#include "tests/graph/partition/partition_case.h"

namespace lumen::graph {
namespace {

bool is_exchange(const Plan& plan, const Group& group) {
  return group.root >= 0 && plan.graph[group.root].op == Op::exchange_;
}

Pipeline pipeline_of_ranks() {
  const TensorSplit split = find_partition(attention(false), 2, [](const std::string&) { return true; });
  return run_pipeline(partitioned(step_of(attention(false)), split), {}, {});
}

// A product for the gradient of a weight stands between an exchange of the backward pass and what reads that.
TEST(BesideExchanges, ProductsOfTheBackwardPass) {
  const Plan plan = pipeline_of_ranks().plan;
  int exchanges = 0, beside = 0;
  for (int i = 0; i < std::ssize(plan.groups); ++i) {
    if (!is_exchange(plan, plan.groups[i])) continue;
    ++exchanges;
    const int end = end_of_exchange(plan, i);
    ASSERT_GT(end, i);
    bool has_product = false;
    for (int k = i + 1; k < end; ++k) {
      has_product = has_product || plan.groups[k].shape == KernelShape::dot;
      for (const ValueId v : plan.groups[k].inputs) EXPECT_NE(v, plan.groups[i].root);
    }
    beside += has_product ? 1 : 0;
  }
  EXPECT_GT(exchanges, 3);
  EXPECT_GT(beside, 0);
}

// What is sent, and room for what comes, is nobody else's until the exchange has ended.
TEST(BesideExchanges, MemoryOfWhatIsUnderWay) {
  const Pipeline pipeline = pipeline_of_ranks();
  const Plan& plan = pipeline.plan;
  const auto overlap = [&](ValueId a, ValueId b) {
    const Slot &x = pipeline.memory.slots[a], &y = pipeline.memory.slots[b];
    return x.where == Slot::Where::arena && y.where == Slot::Where::arena && x.offset < y.offset + y.bytes &&
           y.offset < x.offset + x.bytes;
  };
  int looked_at = 0;
  for (int i = 0; i < std::ssize(plan.groups); ++i) {
    if (!is_exchange(plan, plan.groups[i])) continue;
    for (int k = i + 1; k < end_of_exchange(plan, i); ++k)
      for (const ValueId written : plan.groups[k].results) {
        ++looked_at;
        EXPECT_FALSE(overlap(plan.groups[i].inputs.at(0), written)) << i << " " << k;
        EXPECT_FALSE(overlap(plan.groups[i].root, written)) << i << " " << k;
      }
  }
  EXPECT_GT(looked_at, 0);
}

// A state that is sent changes behind that alone, also where nothing reads what came.
TEST(BesideExchanges, StatesThatAreSent) {
  Graph g;
  Builder b(g);
  const ValueId s = b.input("s", Role::state, {{8}, kF32});
  const ValueId x = b.input("x", Role::data, {{8}, kF32});
  const ValueId all = b.exchange(s, Moves::gather, 2);
  const ValueId moved = b.unary(ScalarOp::exp_, x);
  g.results = {all, b.update(s, moved)};
  g.result_names = {"all", "s"};
  const Plan plan = plan_graph(g).plan;
  for (int i = 0; i < std::ssize(plan.groups); ++i) {
    if (!is_exchange(plan, plan.groups[i])) continue;
    const int end = end_of_exchange(plan, i);
    ASSERT_LT(end, std::ssize(plan.groups));
    EXPECT_EQ(plan.graph[plan.groups[end].results.at(0)].op, Op::update_);
    return;
  }
  ADD_FAILURE() << "nothing is exchanged";
}

}  // namespace
}  // namespace lumen::graph
