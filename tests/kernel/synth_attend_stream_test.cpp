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
  attention({.queries = 70, .keys = 200, .depth = 16}, 130);
  attention({.queries = 64, .keys = 330, .depth = 16, .window = 100}, 250);
  attention({.queries = 64, .keys = 128, .depth = 16, .bias = true}, 64);
}

TEST(SynthAttendStream, RowsThatSeeNothingSeeAll) {
  attention({.queries = 40, .keys = 130, .depth = 16, .window = 4}, 160);
}

TEST(SynthAttendStream, HeadsAndSizes) {
  attention({.batch = 2, .queries = 33, .keys = 65, .groups = 1, .repeat = 2, .depth = 24, .width = 72}, 33);
  attention({.queries = 33, .keys = 33, .depth = 64, .width = 256}, 1, Scalar::f16);
}

TEST(SynthAttendStream, FewBlocksTakePartsOfTheKeys) {
  attention({.queries = 34, .keys = 600, .depth = 16}, 560);
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
  gradient(1, 128, 1, 2, 16, 16);
  gradient(1, 67, 1, 1, 24, 72);
}

}  // namespace
}  // namespace lumen::test
