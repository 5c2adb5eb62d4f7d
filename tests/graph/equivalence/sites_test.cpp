// needs: none. Sites in small graphs: what absorbs a scale, what does not and why.
#include <gtest/gtest.h>

#include "graph/equivalence/equivalence.h"
#include "graph/ir/text.h"

namespace lumen::graph {
namespace {

Graph graph_of(const std::string& body, const std::string& more = "") {
  const std::string text =
      "graph main(%x: data tensor<2x4xf32>, %w: parameter tensor<3x4xf32>" + more + ") {\n" + body + "}\n";
  return *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
}

const ScaledParameter* find(const ScaleSite& site, const std::string& name) {
  for (const ScaledParameter& c : site.changes)
    if (c.parameter == name) return &c;
  return nullptr;
}

TEST(ScaleSites, NormsThatHoldTheirWeightLessOne) {
  const Graph g = graph_of(
      "  %3 = map %x, %g (%0: f32, %1: f32) { %2 = const f32 1; %3 = add f32 %1, %2; %4 = mul f32 %0, %3 } -> %4 : "
      "tensor<2x4xf32>\n"
      "  %4 = contract %3, %w (mk,nk->mn) : tensor<2x3xf32>\n"
      "  return y = %4\n",
      ", %g: parameter tensor<4xf32>");
  const auto sites = scale_sites(g);
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_TRUE(sites[0].is_whole()) << sites[0].reason;
  ASSERT_TRUE(find(sites[0], "g"));
  EXPECT_EQ(find(sites[0], "g")->offset, 1);
  EXPECT_EQ(find(sites[0], "g")->powers, (std::vector<Power>{-1, -2, -3, -4}));
  EXPECT_EQ(find(sites[0], "w")->powers, (std::vector<Power>{1, 2, 3, 4}));
  EXPECT_EQ(find(sites[0], "w")->along, Along::columns);
}

TEST(ScaleSites, WhatIsGivenFromOutsideAbsorbsNothing) {
  const Graph g = graph_of("  %2 = contract %x, %w (mk,nk->mn) : tensor<2x3xf32>\n  return y = %2\n");
  const auto sites = scale_sites(g);
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].free, 0);
  EXPECT_EQ(sites[0].reason, "'x' is given from outside");
  EXPECT_TRUE(sites[0].changes.empty());
}

TEST(ScaleSites, AnotherReaderFixesTheScale) {
  const Graph g = graph_of(
      "  %3 = map %x, %g (%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2 : tensor<2x4xf32>\n"
      "  %4 = contract %3, %w (mk,nk->mn) : tensor<2x3xf32>\n"
      "  %5 = map %3 (%0: f32) { %1 = exp f32 %0 } -> %1 : tensor<2x4xf32> \"powers\"\n"
      "  return y = %4, z = %5\n",
      ", %g: parameter tensor<4xf32>");
  const auto sites = scale_sites(g);
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].free, 0);
  EXPECT_NE(sites[0].reason.find("powers"), std::string::npos) << sites[0].reason;
}

TEST(ScaleSites, RowsBeforeAMaximumAndItsBias) {
  const Graph g = graph_of(
      "  %4 = contract %x, %v (mk,nk->mn) : tensor<2x4xf32>\n"
      "  %5 = map %4, %b (%0: f32, %1: f32) { %2 = add f32 %0, %1; %3 = const f32 0; %4 = max f32 %2, %3 } -> %4 : "
      "tensor<2x4xf32>\n"
      "  %6 = contract %5, %w (mk,nk->mn) : tensor<2x3xf32>\n"
      "  return y = %6\n",
      ", %v: parameter tensor<4x4xf32>, %b: parameter tensor<4xf32>");
  const auto sites = scale_sites(g);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_TRUE(sites[1].is_whole()) << sites[1].reason;
  ASSERT_TRUE(find(sites[1], "v") && find(sites[1], "b"));
  EXPECT_EQ(find(sites[1], "v")->along, Along::rows);
  // Rotations do not pass a maximum: there is no stream here either.
  EXPECT_FALSE(stream_rotation(g).reason.empty());
}

}  // namespace
}  // namespace lumen::graph
