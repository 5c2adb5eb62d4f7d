// Needs: none. Attention that streams its panels (instructions that read shared memory) against the graph evaluator:
// several tiles with and without a mask, windows, masks that begin anywhere, ragged ends, heads that share keys, parts
// of the keys, operands that lie in memory as they are wanted.
#include "attend_cases.h"

namespace lumen::test {
namespace {

void attention(const AttentionCase& c, int64_t limit, Scalar products = Scalar::bf16) {
  const G t = attention_graph(c);
  Check wanted{.tolerance = 2e-2, .limits = {{"start", limit}}};
  wanted.machines = {"sm_90a"};
  wanted.options.products = products;
  int found = 0;
  for (const std::string& p : check(t.g, wanted)) found += p.find("streamed") != std::string::npos;
  EXPECT_EQ(found, 1);
}

TEST(SynthAttendStream, TilesBesideTheMask) {
  attention({.queries = 200, .keys = 200, .depth = 16}, 1);
  attention({.queries = 70, .keys = 330, .depth = 16}, 200);
  attention({.queries = 130, .keys = 400, .depth = 16, .window = 150}, 250);
  attention({.queries = 64, .keys = 256, .depth = 16, .bias = true}, 256);
}

TEST(SynthAttendStream, RowsThatSeeNothingSeeAll) {
  attention({.queries = 40, .keys = 130, .depth = 16, .window = 4}, 160);
}

TEST(SynthAttendStream, HeadsAndSizes) {
  attention({.batch = 2, .queries = 65, .keys = 129, .groups = 2, .repeat = 3, .depth = 24, .width = 72}, 64);
  attention({.queries = 33, .keys = 65, .depth = 128, .width = 128}, 33, Scalar::f16);
  attention({.queries = 33, .keys = 65, .depth = 64, .width = 256}, 33);
}

TEST(SynthAttendStream, FewBlocksTakePartsOfTheKeys) {
  attention({.queries = 34, .keys = 600, .groups = 1, .repeat = 2, .depth = 16}, 560);
}

void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width) {
  const G t = gradient_graph(batch, length, groups, repeat, depth, width);
  Check wanted{.tolerance = 4e-2};
  wanted.machines = {"sm_90a"};
  wanted.options.products = Scalar::bf16;
  int found = 0;
  for (const std::string& p : check(t.g, wanted)) found += p.find("streamed") != std::string::npos;
  EXPECT_EQ(found, 3);
}

TEST(SynthAttendStream, Gradient) {
  gradient(1, 130, 1, 1, 16, 16);
  gradient(1, 128, 1, 2, 64, 40);
  gradient(1, 67, 1, 3, 24, 128);
}

}  // namespace
}  // namespace lumen::test
