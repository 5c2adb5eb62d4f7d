// Needs: none. Loads of groups stop at what is in memory, broadcast to their consumers, and merge axes walked alike.
#include "graph/group/access.h"

#include <gtest/gtest.h>

#include "graph/ir/build.h"

namespace lumen::graph {
namespace {

const Element kF32{Scalar::f32, nullptr};

TEST(GroupAccess, StopsAtWhatTheGroupReads) {
  Plan plan;
  Builder b(plan.graph);
  const ValueId x = b.input("x", Role::data, {{4, 6}, kF32});
  const ValueId kept = b.permute(x, {1, 0});
  const ValueId v = b.reshape(kept, {6, 1, 4});
  Group group;
  group.inputs = {kept};
  const Access stopped = follow(plan, group, v);
  EXPECT_EQ(stopped.source, kept);
  EXPECT_EQ(stopped.strides, (std::vector<int64_t>{4, 0, 1}));
  group.inputs = {x};
  const Access whole = follow(plan, group, v);
  EXPECT_EQ(whole.source, x);
  EXPECT_EQ(whole.strides, (std::vector<int64_t>{1, 0, 6}));
  EXPECT_EQ(follow_to(plan, group, v, {2, 6, 3, 4}).strides, (std::vector<int64_t>{0, 1, 0, 6}));
  EXPECT_TRUE(is_load(plan, group, v));
  EXPECT_TRUE(reads_memory(group, x));
  EXPECT_FALSE(reads_memory(group, v));
}

TEST(GroupAccess, CollapsesAxesWalkedAlike) {
  const Collapsed all = collapse({2, 1, 3, 4}, {{12, 0, 4, 1}, {24, 5, 8, 2}}, {});
  EXPECT_EQ(all.extents, (std::vector<int64_t>{24}));
  EXPECT_EQ(all.strides, (std::vector<std::vector<int64_t>>{{1}, {2}}));
  const Collapsed parted = collapse({2, 3, 4}, {{12, 4, 1}}, {false, true});
  EXPECT_EQ(parted.extents, (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(parted.first_axis, (std::vector<int>{0, 2}));
  const Collapsed scalar = collapse({1, 1}, {{0, 0}}, {});
  EXPECT_EQ(scalar.extents, (std::vector<int64_t>{1}));
  EXPECT_EQ(scalar.first_axis, (std::vector<int>{-1}));
}

}  // namespace
}  // namespace lumen::graph
