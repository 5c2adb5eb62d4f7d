// needs: none. Integers that a graph shows not to be negative.
#include "graph/match/sign.h"

#include <gtest/gtest.h>

#include "graph/ir/text.h"

namespace lumen::graph {
namespace {

bool shown(const std::string& body) {
  const std::string text =
      "graph main(%x: data tensor<4x6xf32>, %i: data tensor<4x1xi32>, %u: data tensor<4x1xu32>) {\n" + body + "}\n";
  const Graph g = *parse(std::make_shared<Source>(Source{"test", text}), nullptr).back();
  return is_never_negative(g, g.results[0]);
}

TEST(Sign, IsShownByPositionsAndChoicesAmongThem) {
  EXPECT_FALSE(shown("  return y = %i\n"));
  EXPECT_TRUE(shown("  return y = %u\n"));
  EXPECT_FALSE(shown("  return y = %x\n"));
  EXPECT_TRUE(shown("  %3 = iota axis=0 : tensor<4x1xi32>\n  return y = %3\n"));
  EXPECT_TRUE(shown("  %3 = constant {3} : tensor<4x1xi32>\n  return y = %3\n"));
  EXPECT_FALSE(shown("  %3 = constant {-3} : tensor<4x1xi32>\n  return y = %3\n"));
}

// As argmax and what puts several of them together.
TEST(Sign, GoesThroughWhatChoosesAndMoves) {
  const auto after = [](const std::string& formula, const std::string& more = "") {
    return "  %3 = iota axis=1 : tensor<1x6xi32>\n  %4 = map %x, %3, %i (%0: f32, %1: i32, %2: i32) { " + formula +
           " : tensor<4x6xi32>\n" + more;
  };
  const std::string least = "  %5 = reduce %4 min axes=[1] : tensor<4x1xi32>\n";
  const std::string choice =
      "%3 = const f32 1; %4 = eq bool %0, %3; %5 = const i32 99; %6 = select i32 %4, %1, %5 } -> %6";
  EXPECT_TRUE(shown(after(choice, least + "  return y = %5\n")));
  EXPECT_TRUE(shown(after(choice, least + "  %6 = concat %5, %5 axis=1 : tensor<4x2xi32>\n"
                                          "  %7 = permute %6 axes=[1, 0] : tensor<2x4xi32>\n  return y = %7\n")));
  EXPECT_FALSE(shown(after(choice, least + "  %6 = concat %5, %i axis=1 : tensor<4x2xi32>\n  return y = %6\n")));
  EXPECT_FALSE(
      shown(after("%3 = const f32 1; %4 = eq bool %0, %3; %5 = select i32 %4, %1, %2 } -> %5", "  return y = %4\n")));
  EXPECT_FALSE(shown(after("%3 = sub i32 %1, %1 } -> %3", "  return y = %4\n")));
  EXPECT_TRUE(shown(after("%3 = max i32 %1, %2 } -> %3", "  return y = %4\n")));
  EXPECT_FALSE(shown(after("%3 = min i32 %1, %2 } -> %3", "  return y = %4\n")));
}

}  // namespace
}  // namespace lumen::graph
