// needs: none. What changes places with the experts of a mixture: routers, their biases, what is looked up by numbers.
#include "graph/equivalence/expert_order.h"

#include <gtest/gtest.h>

#include "graph/ir/text.h"

namespace lumen::graph {
namespace {

Graph graph_of(const std::string& text) {
  return *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
}

using Names = std::vector<std::string>;

// Two experts of four for each of three rows, chosen by scores (%9), weighted by them; with something in their place.
std::string mixture(const std::string& scores, const std::string& rest = "") {
  return "graph main(%x: data tensor<3x6xf32>, %router: parameter tensor<4x6xf32>, %bias: parameter tensor<4xf32>,\n"
         "           %up: parameter tensor<4x5x6xf32>, %ub: parameter tensor<4x5xf32>, %down: parameter "
         "tensor<4x6x5xf32>, %places: data tensor<4xf32>) {\n"
         "  %7 = contract %x, %router (nk,ek->ne) : tensor<3x4xf32>\n"
         "  %8 = map %7, %bias (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<3x4xf32>\n" +
         scores +
         "  %10 = reduce %9 max axes=[1] : tensor<3x1xf32>\n"
         "  %11 = iota axis=1 : tensor<1x4xi32>\n"
         "  %12 = map %9, %10, %11 (%0: f32, %1: f32, %2: i32) { %3 = eq bool %0, %1; %4 = const i32 2147483647; %5 = "
         "select i32 %3, %2, %4 } -> %5 : tensor<3x4xi32>\n"
         "  %13 = reduce %12 min axes=[1] : tensor<3x1xi32>\n"
         "  %14 = map %9, %11, %13 (%0: f32, %1: i32, %2: i32) { %3 = eq bool %1, %2; %4 = const f32 -99; %5 = "
         "select f32 %3, %4, %0 } -> %5 : tensor<3x4xf32>\n"
         "  %15 = reduce %14 max axes=[1] : tensor<3x1xf32>\n"
         "  %16 = map %14, %15, %11 (%0: f32, %1: f32, %2: i32) { %3 = eq bool %0, %1; %4 = const i32 2147483647; %5 = "
         "select i32 %3, %2, %4 } -> %5 : tensor<3x4xi32>\n"
         "  %17 = reduce %16 min axes=[1] : tensor<3x1xi32>\n"
         "  %18 = concat %13, %17 axis=1 : tensor<3x2xi32>\n"
         "  %19 = contract_gather %x, %up, %18 (nk,efk,nj->njf) : tensor<3x2x5xf32>\n"
         "  %20 = gather %ub, %18 : tensor<3x2x5xf32>\n"
         "  %21 = map %19, %20 (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<3x2x5xf32>\n"
         "  %22 = contract_gather %21, %down, %18 (njf,edf,nj->njd) : tensor<3x2x6xf32>\n"
         "  %23 = reshape %18 : tensor<3x2x1xi32>\n"
         "  %24 = iota axis=2 : tensor<1x1x4xi32>\n"
         "  %25 = reshape %7 : tensor<3x1x4xf32>\n"
         "  %26 = map %23, %24, %25 (%0: i32, %1: i32, %2: f32) { %3 = eq bool %0, %1; %4 = const f32 0; %5 = select "
         "f32 %3, %2, %4 } -> %5 : tensor<3x2x4xf32>\n"
         "  %27 = reduce %26 sum axes=[2] : tensor<3x2x1xf32>\n"
         "  %28 = reshape %27 : tensor<3x2xf32>\n"
         "  %29 = contract %28, %22 (nj,njd->nd) : tensor<3x6xf32>\n" +
         (rest.empty() ? "  return y = %29\n}\n" : rest);
}
const std::string kBiased = "  %9 = map %8 (%0: f32) { %1 = exp f32 %0 } -> %1 : tensor<3x4xf32>\n";

TEST(ExpertOrder, TakesRoutersAndBiasesAlong) {
  const auto found = expert_order(graph_of(mixture(kBiased)), {"up", "down"});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Names{"router", "bias", "ub"}));
}

TEST(ExpertOrder, IsNotFreeWhereNumbersMeanMore) {
  // Scores that depend on places, numbers and scores that are handed back.
  EXPECT_FALSE(expert_order(graph_of(mixture("  %9 = map %8, %places (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 "
                                             ": tensor<3x4xf32>\n")),
                            {"up", "down"}));
  EXPECT_FALSE(expert_order(graph_of(mixture(kBiased, "  return y = %29, p = %18\n}\n")), {"up", "down"}));
  EXPECT_FALSE(expert_order(graph_of(mixture(kBiased, "  return y = %29, s = %9\n}\n")), {"up", "down"}));
  // Both matrices must take it.
  EXPECT_FALSE(expert_order(graph_of(mixture(kBiased)), {}));
}

// A stacked weight that is left out is found, for it is picked by the same numbers.
TEST(ExpertOrder, FindsOtherWeightsOfTheMixture) {
  const auto found = expert_order(graph_of(mixture(kBiased)), {"up"});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (Names{"router", "bias", "ub", "down"}));
}

}  // namespace
}  // namespace lumen::graph
