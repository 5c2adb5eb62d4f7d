// Needs: none. Borders of products and signs of what they read, found by the structure of graphs alone.
#include "apps/diffuse/sites/sites.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/place.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"

namespace lumen::graph {
namespace {

using Widths = std::vector<int64_t>;

Graph sites_graph(const std::string& text) {
  Graph g = *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
  EXPECT_EQ(verify(g), "");
  return g;
}

// What reads a product of x [3, 8] with w [12, 8]; values from %2 on.
ProductSite cut_by(const std::string& lines) {
  const auto sites = product_sites(sites_graph(
      "graph main(%x: data tensor<3x8xf32>, %w: parameter tensor<12x8xf32>, %b: parameter tensor<12xf32>) {\n"
      "  %3 = contract %x, %w (mk,nk->mn) : tensor<3x12xf32>\n" +
      lines + "}\n"));
  EXPECT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites.at(0).weight, "w");
  EXPECT_EQ(sites[0].rows, 12);
  EXPECT_EQ(sites[0].columns, 8);
  EXPECT_FALSE(sites[0].is_polar);
  return sites[0];
}

const std::string kBias = "  %4 = map %3, %b (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<3x12xf32>\n";

TEST(ProductSites, ResultsThatAreCut) {
  EXPECT_EQ(cut_by("  %4 = slice %3 starts=[0, 0] strides=[1, 1] : tensor<3x4xf32>\n"
                   "  %5 = slice %3 starts=[0, 4] strides=[1, 1] : tensor<3x8xf32>\n  return a = %4, b = %5\n")
                .row_segments,
            (Widths{4, 8}));
  // Behind a bias and reshapes; in any order, one of them read twice.
  EXPECT_EQ(cut_by(kBias + "  %5 = slice %4 starts=[0, 7] strides=[1, 1] : tensor<3x5xf32>\n"
                           "  %6 = reshape %4 : tensor<1x3x12xf32>\n"
                           "  %7 = slice %6 starts=[0, 0, 0] strides=[1, 1, 1] : tensor<1x3x1xf32>\n"
                           "  %8 = slice %4 starts=[0, 1] strides=[1, 1] : tensor<3x6xf32>\n"
                           "  %9 = reshape %5 : tensor<1x15xf32>\n"
                           "  return a = %7, b = %8, c = %9\n")
                .row_segments,
            (Widths{1, 6, 5}));
  // Queries, keys and values of two heads.
  EXPECT_EQ(cut_by(kBias + "  %5 = reshape %4 : tensor<3x3x2x2xf32>\n"
                           "  %6 = slice %5 starts=[0, 0, 0, 0] strides=[1, 1, 1, 1] : tensor<3x1x2x2xf32>\n"
                           "  %7 = slice %5 starts=[0, 1, 0, 0] strides=[1, 1, 1, 1] : tensor<3x1x2x2xf32>\n"
                           "  %8 = slice %5 starts=[0, 2, 0, 0] strides=[1, 1, 1, 1] : tensor<3x1x2x2xf32>\n"
                           "  return a = %6, b = %7, c = %8\n")
                .row_segments,
            (Widths{4, 4, 4}));
}

TEST(ProductSites, ResultsThatAreNot) {
  const std::string first = "  %4 = slice %3 starts=[0, 0] strides=[1, 1] : tensor<3x4xf32>\n";
  const auto whole = [](const std::string& lines) { EXPECT_EQ(cut_by(lines).row_segments, Widths()) << lines; };
  whole("  return a = %3\n");
  whole(first + "  return a = %4\n");  // no cover
  whole(first +
        "  %5 = slice %3 starts=[0, 3] strides=[1, 1] : tensor<3x9xf32>\n  return a = %4, b = %5\n");  // overlap
  whole(first + "  %5 = slice %3 starts=[0, 5] strides=[1, 1] : tensor<3x7xf32>\n  return a = %4, b = %5\n");  // a gap
  // Something reads it whole; rows are cut, not columns; every second column; the map is no bias.
  const std::string rest = first + "  %5 = slice %3 starts=[0, 4] strides=[1, 1] : tensor<3x8xf32>\n";
  whole(rest + "  return a = %4, b = %5, c = %3\n");
  whole(
      "  %4 = slice %3 starts=[0, 0] strides=[1, 1] : tensor<1x12xf32>\n"
      "  %5 = slice %3 starts=[1, 0] strides=[1, 1] : tensor<2x12xf32>\n  return a = %4, b = %5\n");
  whole(
      "  %4 = slice %3 starts=[0, 0] strides=[1, 2] : tensor<3x6xf32>\n"
      "  %5 = slice %3 starts=[0, 1] strides=[1, 2] : tensor<3x6xf32>\n  return a = %4, b = %5\n");
  whole(
      "  %4 = map %3 (%0: f32) { %1 = exp f32 %0 } -> %1 : tensor<3x12xf32>\n"
      "  %5 = slice %4 starts=[0, 0] strides=[1, 1] : tensor<3x4xf32>\n"
      "  %6 = slice %4 starts=[0, 4] strides=[1, 1] : tensor<3x8xf32>\n  return a = %5, b = %6\n");
}

// A product of what `lines` make as the value before last: [3, 8].
ProductSite reading(const std::string& lines, int value) {
  const auto sites = product_sites(sites_graph(
      "graph main(%a: data tensor<3x8xf32>, %b: data tensor<3x2x4xf32>, %c: data tensor<3x5xf32>, "
      "%d: data tensor<3x3xf32>, %w: parameter tensor<6x8xf32>) {\n" +
      lines +
      fmt::format("  %{} = contract %{}, %w (mk,nk->mn) : tensor<3x6xf32>\n  return y = %{}\n}}\n",
                  std::max(value + 1, 5), value > 0 ? fmt::to_string(value) : "a", std::max(value + 1, 5))));
  EXPECT_EQ(sites.size(), 1U);
  return sites.at(0);
}

TEST(ProductSites, OperandsThatWerePutTogether) {
  EXPECT_EQ(reading("  %5 = concat %c, %d axis=1 : tensor<3x8xf32>\n", 5).column_segments, (Widths{5, 3}));
  EXPECT_EQ(reading("  %5 = reshape %b : tensor<3x8xf32>\n", 5).column_segments, (Widths{4, 4})) << "heads";
  EXPECT_EQ(reading("  %5 = concat %d, %c axis=1 : tensor<3x8xf32>\n"
                    "  %6 = map %5 (%0: f32) { %1 = cast f16 %0 } -> %1 : tensor<3x8xf16>\n"
                    "  %7 = map %6 (%0: f16) { %1 = cast f32 %0 } -> %1 : tensor<3x8xf32>\n",
                    7)
                .column_segments,
            (Widths{3, 5}))
      << "behind casts";
  // Along rows; of what is computed of it; axes in another order.
  EXPECT_EQ(reading("  %5 = slice %a starts=[0, 0] strides=[1, 1] : tensor<1x8xf32>\n"
                    "  %6 = slice %a starts=[1, 0] strides=[1, 1] : tensor<2x8xf32>\n"
                    "  %7 = concat %6, %5 axis=0 : tensor<3x8xf32>\n",
                    7)
                .column_segments,
            Widths());
  EXPECT_EQ(reading("  %5 = concat %d, %c axis=1 : tensor<3x8xf32>\n"
                    "  %6 = map %5 (%0: f32) { %1 = exp f32 %0 } -> %1 : tensor<3x8xf32>\n",
                    6)
                .column_segments,
            Widths());
  EXPECT_EQ(reading("  %5 = permute %b axes=[0, 2, 1] : tensor<3x4x2xf32>\n  %6 = reshape %5 : tensor<3x8xf32>\n", 6)
                .column_segments,
            (Widths{2, 2, 2, 2}));
  EXPECT_EQ(reading("", 0).column_segments, Widths());
}

// x / (1 + exp(-x)) of %0, as nodes from `first`.
std::string silu_nodes(int x, int first) {
  return fmt::format(
      "%{1} = neg f32 %{0}; %{2} = exp f32 %{1}; %{3} = const f32 1; %{4} = add f32 %{3}, %{2}; "
      "%{5} = div f32 %{0}, %{4}",
      x, first, first + 1, first + 2, first + 3, first + 4);
}

TEST(ProductSites, WhatSiluAndGeluMade) {
  const auto polar = [](const std::string& lines, int value) { return reading(lines, value).is_polar; };
  const std::string silu = "  %5 = map %a (%0: f32) { " + silu_nodes(0, 1) + " } -> %5 : tensor<3x8xf32>\n";
  EXPECT_TRUE(polar(silu, 5));
  EXPECT_TRUE(polar("  %5 = map %a, %a (%0: f32, %1: f32) { %2 = add f32 %0, %1; " + silu_nodes(2, 3) +
                        " } -> %7 : tensor<3x8xf32>\n",
                    5))
      << "of a sum in the same map";
  EXPECT_TRUE(polar("  %5 = map %b (%0: f32) { " + silu_nodes(0, 1) +
                        "; %6 = cast bf16 %5 } -> %6 : tensor<3x2x4xbf16>\n"
                        "  %6 = reshape %5 : tensor<3x8xbf16>\n"
                        "  %7 = map %6 (%0: bf16) { %1 = cast f32 %0 } -> %1 : tensor<3x8xf32>\n",
                    7))
      << "through a cast and a reshape";
  // GELU by tanh in two maps, and by a sigmoid.
  EXPECT_TRUE(
      polar("  %5 = map %a (%0: f32) { %1 = mul f32 %0, %0; %2 = mul f32 %1, %0; %3 = const f32 0.044714998453855515; "
            "%4 = mul "
            "f32 %2, %3; %5 = add f32 %0, %4; %6 = const f32 0.7978845834732056; %7 = mul f32 %5, %6; %8 = tanh "
            "f32 %7 } -> %8 : tensor<3x8xf32>\n"
            "  %6 = map %5, %a (%0: f32, %1: f32) { %2 = const f32 1; %3 = add f32 %0, %2; %4 = const f32 0.5; %5 "
            "= mul f32 %1, %4; %6 = mul f32 %5, %3 } -> %6 : tensor<3x8xf32>\n",
            6));
  // A gated product, SiLU with something behind it, and functions of other kinds are not.
  EXPECT_FALSE(polar("  %5 = reshape %b : tensor<3x8xf32>\n  %6 = map %a, %5 (%0: f32, %1: f32) { " + silu_nodes(0, 2) +
                         "; %7 = mul f32 %6, %1 } -> %7 : tensor<3x8xf32>\n",
                     6));
  EXPECT_FALSE(
      polar(silu + "  %6 = map %5, %a (%0: f32, %1: f32) { %2 = mul f32 %0, %1 } -> %2 : tensor<3x8xf32>\n", 6));
  EXPECT_FALSE(
      polar(silu + "  %6 = map %5, %a (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<3x8xf32>\n", 6));
  EXPECT_FALSE(polar("  %5 = map %a (%0: f32) { %1 = const f32 0; %2 = max f32 %0, %1 } -> %2 : tensor<3x8xf32>\n", 5));
  EXPECT_FALSE(polar("  %5 = map %a (%0: f32) { %1 = tanh f32 %0 } -> %1 : tensor<3x8xf32>\n", 5));
  EXPECT_FALSE(polar("", 0));
}

// SiLU, then a product that is cut: one site has both.
TEST(ProductSites, BothAtOnce) {
  const auto sites = product_sites(sites_graph(
      "graph main(%x: data tensor<2x4xf32>, %w: parameter tensor<6x4xf32>, %v: parameter tensor<4x4xf32>) {\n"
      "  %3 = map %x (%0: f32) { " +
      silu_nodes(0, 1) +
      " } -> %5 : tensor<2x4xf32>\n"
      "  %4 = contract %3, %w (mk,nk->mn) : tensor<2x6xf32>\n"
      "  %5 = slice %4 starts=[0, 0] strides=[1, 1] : tensor<2x2xf32>\n"
      "  %6 = slice %4 starts=[0, 2] strides=[1, 1] : tensor<2x4xf32>\n"
      "  %7 = contract %6, %v (mk,nk->mn) : tensor<2x4xf32>\n"
      "  %8 = contract %x, %v (mk,nk->mn) : tensor<2x4xf32>\n"
      "  return a = %5, b = %7, c = %8\n}\n"));
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].row_segments, (Widths{2, 4}));
  EXPECT_TRUE(sites[0].is_polar);
  EXPECT_EQ(sites[1].weight, "v") << "two products with one weight are one site";
  EXPECT_FALSE(sites[1].is_polar);
}

}  // namespace
}  // namespace lumen::graph
