// needs: none. Where the columns of a weight may change places: rows before it, through whatever is channel by channel.
#include "graph/equivalence/rows_before.h"

#include <gtest/gtest.h>

#include "graph/ir/text.h"

namespace lumen::graph {
namespace {

Graph graph_of(const std::string& text) {
  return *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
}

// down (f(gate x + b) * up x), with something in the place of %11.
std::string feed_forward(const std::string& rest, const std::string& results = "", const std::string& last = "%11") {
  return "graph main(%x: data tensor<4x6xf32>, %gate: parameter tensor<8x6xf32>, %up: parameter tensor<8x6xf32>,\n"
         "           %down: parameter tensor<6x8xf32>, %b: parameter tensor<8xf32>, %s: data tensor<4x1xf32>) {\n"
         "  %6 = contract %x, %gate (bk,nk->bn) : tensor<4x8xf32>\n"
         "  %7 = contract %x, %up (bk,nk->bn) : tensor<4x8xf32>\n"
         "  %8 = map %6, %b (%0: f32, %1: f32) { %2 = add f32 %0, %1; %3 = tanh f32 %2 } -> %3 : tensor<4x8xf32>\n"
         "  %9 = map %8, %7, %s (%0: f32, %1: f32, %2: f32) { %3 = mul f32 %0, %1; %4 = mul f32 %3, %2 } -> %4 : "
         "tensor<4x8xf32>\n" +
         rest + "  return y = " + last + results + "\n}\n";
}
const std::string kPlain =
    "  %10 = reshape %9 : tensor<2x2x8xf32>\n  %11 = contract %10, %down (abk,nk->abn) : tensor<2x2x6xf32>\n";

TEST(RowsBefore, GoThroughFunctionsOfChannels) {
  const auto found = rows_before(graph_of(feed_forward(kPlain)), {"down"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rows, (std::vector<std::string>{"up", "gate"}));
  EXPECT_EQ(found->elements, std::vector<std::string>{"b"});
}

TEST(RowsBefore, AreNotFreeWhereOthersRead) {
  // What gate gives, or its bias, is a result, too; channels are summed; heads are cut.
  EXPECT_FALSE(rows_before(graph_of(feed_forward(kPlain, ", z = %6")), {"down"}));
  EXPECT_FALSE(rows_before(graph_of(feed_forward(kPlain, ", z = %b")), {"down"}));
  EXPECT_FALSE(rows_before(graph_of(feed_forward(kPlain, ", z = %gate")), {"down"}));
  EXPECT_FALSE(rows_before(graph_of(feed_forward(kPlain)), {"gate", "up"}));
  const std::string reduced =
      "  %10 = reduce %9 sum axes=[1] : tensor<4x1xf32>\n"
      "  %11 = map %9, %10 (%0: f32, %1: f32) { %2 = div f32 %0, %1 } -> %2 : tensor<4x8xf32>\n"
      "  %12 = contract %11, %down (bk,nk->bn) : tensor<4x6xf32>\n";
  EXPECT_FALSE(rows_before(graph_of(feed_forward(reduced, "", "%12")), {"down"}));
}

TEST(RowsBefore, OfExperts) {
  const auto found = rows_before(
      graph_of("graph main(%x: data tensor<4x6xf32>, %i: data tensor<4x2xi32>, %up: parameter tensor<3x8x6xf32>,\n"
               "           %down: parameter tensor<3x6x8xf32>, %b: parameter tensor<3x8xf32>) {\n"
               "  %5 = contract_gather %x, %up, %i (nk,efk,nj->njf) : tensor<4x2x8xf32>\n"
               "  %6 = gather %b, %i : tensor<4x2x8xf32>\n"
               "  %7 = map %5, %6 (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : tensor<4x2x8xf32>\n"
               "  %8 = contract_gather %7, %down, %i (njk,efk,nj->njf) : tensor<4x2x6xf32>\n"
               "  return y = %8\n}\n"),
      {"down"});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rows, std::vector<std::string>{"up"});
  EXPECT_EQ(found->elements, std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace lumen::graph
