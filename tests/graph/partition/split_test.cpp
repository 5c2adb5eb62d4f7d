// Needs: none. Splits through views, either way: heads of rows, several things in one axis, and what no axis can say.
#include "graph/partition/split.h"

#include <gtest/gtest.h>

namespace lumen::graph {
namespace {

TEST(Split, HeadsOfRowsGoThroughReshapesEitherWay) {
  const Shape flat{2, 3, 32}, heads{2, 3, 2, 2, 8};
  const auto there = through_reshape(flat, {2, {32}}, heads, 2);
  ASSERT_TRUE(there && there->divides);
  EXPECT_EQ(there->split, (Split{2, {2}}));
  const auto back = through_reshape(heads, there->split, flat, 2);
  ASSERT_TRUE(back && back->divides);
  EXPECT_EQ(back->split, (Split{2, {32}}));
}

TEST(Split, ThreeThingsInOneAxisAreThreeSections) {
  const Shape flat{5, 24}, apart{5, 3, 4, 2};
  const auto back = through_reshape(apart, {2, {4}}, flat, 2);
  ASSERT_TRUE(back && back->divides);
  EXPECT_EQ(back->split, (Split{1, {8, 8, 8}}));
  const auto there = through_reshape(flat, back->split, apart, 2);
  ASSERT_TRUE(there && there->divides);
  EXPECT_EQ(there->split, (Split{2, {4}}));
}

TEST(Split, WhatRanksDoNotDivideIsSaid) {
  const auto there = through_reshape({5, 32}, {1, {32}}, {5, 2, 16}, 4);
  ASSERT_TRUE(there);
  EXPECT_FALSE(there->divides);
  EXPECT_EQ(there->split, (Split{1, {2}}));
  EXPECT_FALSE(through_reshape({5, 6}, {1, {2, 4}}, {5, 3, 2}, 2));  // two of three rows, and the first one
}

TEST(Split, SectionsOfASlice) {
  EXPECT_EQ(sections_in({8, 4, 4}, 8, 8), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(sections_in({8, 4, 4}, 4, 8), std::nullopt);
  EXPECT_TRUE(deals({0, {8, 4}}, 4));
  EXPECT_FALSE(deals({0, {8, 6}}, 4));
  EXPECT_EQ(local_shape({8, 12}, {1, {8, 4}}, 4), (Shape{8, 3}));
}

}  // namespace
}  // namespace lumen::graph
