// Needs: none. Views folded into strides read the same elements as the oracle; what cannot be folded is refused.
#include "graph/match/access.h"

#include <gtest/gtest.h>

#include "random_graph.h"

namespace lumen::graph {
namespace {

const Element kF32{Scalar::f32, nullptr};

TEST(Access, FoldsViews) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 6}, kF32});
  const ValueId v = b.slice(b.permute(b.reshape(x, {2, 2, 6}), {2, 0, 1}), {1, 0, 1}, {3, 2, 1}, {2, 1, 1});
  const auto access = affine_access(g, v);
  ASSERT_TRUE(access);
  EXPECT_EQ(access->source, x);
  EXPECT_EQ(access->offset, 1 + 6);
  EXPECT_EQ(access->strides, (std::vector<int64_t>{2, 12, 6}));
}

TEST(Access, WindowsOverlap) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 10}, kF32});
  const ValueId v = b.windows(b.permute(x, {1, 0}), {1, 2}, {0, 2, 1, 1, 0, 0}, {2, 3, 4});
  const auto access = affine_access(g, v);
  ASSERT_TRUE(access);
  EXPECT_EQ(access->offset, 1 + 2 * 10);
  EXPECT_EQ(access->strides, (std::vector<int64_t>{10, 2, 1}));
  EXPECT_EQ(plain_index(g, g[v], 0), -1);
  EXPECT_EQ(plain_index(g, g[b.windows(x, {0, 0}, {0, 1, 0, 2, 0, 1}, {3, 4, 6})], 0), 1);
  EXPECT_FALSE(affine_access(g, b.reshape(v, {2, 12})));
}

TEST(Access, WhatNothingWrites) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 6}, kF32}), w = b.input("w", Role::parameter, {{4, 6}, kF32});
  const ValueId s = b.input("s", Role::state, {{4, 6}, kF32}), p = b.input("p", Role::parameter, {{4, 6}, kF32});
  const ValueId sum = b.add(x, w);
  const ValueId once = b.update(p, sum);
  const ValueId twice = b.update(once, x);
  const std::vector<bool> held = unwritten(g);
  EXPECT_TRUE(held[static_cast<size_t>(w)]);
  for (const ValueId v : {x, s, p, sum, once, twice}) EXPECT_FALSE(held[static_cast<size_t>(v)]) << v;
}

TEST(Access, MergingPermutedAxesIsRefused) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 6}, kF32});
  EXPECT_FALSE(affine_access(g, b.reshape(b.permute(x, {1, 0}), {24})));
  EXPECT_TRUE(affine_access(g, b.reshape(b.permute(x, {1, 0}), {2, 3, 4})));
}

TEST(Access, BroadcastsToTheConsumer) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{4, 1}, kF32});
  const auto access = affine_access(g, x);
  ASSERT_TRUE(access);
  EXPECT_EQ(broadcast(*access, {4, 1}, {3, 4, 5}).strides, (std::vector<int64_t>{0, 1, 0}));
}

TEST(Access, AgreesWithTheOracleOnRandomChains) {
  size_t checked = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomGraph random(seed);
    Graph g = random.graph();
    for (ValueId v = 0; v < static_cast<ValueId>(g.nodes.size()); ++v) {
      if (!is_view(g[v].op)) continue;
      const auto access = affine_access(g, v);
      if (!access || g[access->source].op == Op::update_ || g[v].type.element.scalar != Scalar::f32) continue;
      Graph both = g;
      both.nodes.resize(static_cast<size_t>(v) + 1, g[0]);
      both.results = {access->source, v};
      both.result_names = {"", ""};
      const auto r = eval(both, random.inputs());
      const std::vector<int64_t> extent = extents_of(g[v].type.shape);
      std::vector<int64_t> index(extent.size(), 0);
      for (double value : r[1].values) {
        int64_t at = access->offset;
        for (size_t d = 0; d < index.size(); ++d) at += index[d] * access->strides[d];
        ASSERT_EQ(r[0].values.at(static_cast<size_t>(at)), value) << "seed " << seed << " value " << v;
        for (size_t d = extent.size(); d-- > 0;) {
          if (++index[d] < extent[d]) break;
          index[d] = 0;
        }
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 500u);
}

}  // namespace
}  // namespace lumen::graph
