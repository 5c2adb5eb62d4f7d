// Needs: none. Attention groups against the graph evaluator: prefill and decode, causal masks, grouped heads, keys in
// formats.
#include "attend_cases.h"

namespace lumen::test {
namespace {

void attention(int64_t batch, int64_t queries, int64_t keys, int64_t groups, int64_t repeat, int64_t depth,
               const FormatRef& format, int64_t window = 0, int64_t limit = 0) {
  const G t = attention_graph({batch, queries, keys, groups, repeat, depth, depth, format, window});
  const std::vector<std::string> plans =
      check(t.g, {.tolerance = 1e-5, .limits = {{"start", limit > 0 ? limit : keys}}, .machines = {"x86-64-v3"}});
  bool attends = false;
  for (const std::string& p_text : plans)
    attends = attends || (p_text.starts_with("attend") && p_text.find("bounded") != std::string::npos);
  EXPECT_TRUE(attends || keys == 1) << "fuse did not find the attention of " << batch << " " << queries << " " << keys;
}

TEST(SynthAttend, PrefillAndDecode) {
  attention(1, 5, 5, 2, 1, 16, nullptr);
  attention(2, 7, 13, 2, 2, 8, nullptr);
  attention(1, 1, 19, 2, 2, 32, nullptr);
  attention(1, 3, 11, 1, 3, 20, nullptr);
  attention(1, 21, 21, 2, 1, 16, nullptr);
  attention(1, 9, 150, 1, 1, 20, nullptr);
  attention(2, 1, 33, 1, 1, 48, nullptr);
  attention(1, 37, 1, 1, 2, 16, nullptr);
}

TEST(SynthAttend, BlocksThatTheMaskHidesAreSkipped) {
  attention(1, 40, 300, 1, 2, 16, nullptr, 0, 5);
  attention(1, 90, 300, 1, 1, 16, nullptr, 30, 5);
  attention(1, 3, 300, 1, 1, 16, nullptr, 20, 290);
  attention(1, 9, 33, 1, 1, 16, nullptr, 4, 60);  // rows whose window lies behind the last key see all of them
}

TEST(SynthAttend, FewHeadsSplitTheirKeys) {
  attention(1, 1, 1100, 2, 2, 16, nullptr, 0, 1100);
  attention(1, 2, 1100, 1, 1, 20, nullptr, 0, 40);
  attention(1, 1, 1040, 1, 1, 32, format_named("q8_0"), 0, 1040);
}

TEST(SynthAttend, KeysInFormats) {
  attention(1, 2, 9, 2, 2, 64, format_named("q8_0"));
  attention(1, 2, 9, 2, 1, 24, format_named("f16"));
}

void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width) {
  const G t = gradient_graph(batch, length, groups, repeat, depth, width);
  int kernels = 0;
  std::string all;
  for (const std::string& plan : check(t.g, {.tolerance = 1e-5})) {
    all += plan + "\n";
    kernels += plan.starts_with("attend gradient") && plan.find("bounded") != std::string::npos ? 1 : 0;
    EXPECT_FALSE(plan.starts_with("dot")) << plan;
  }
  EXPECT_EQ(kernels, 2) << all << graph::print(t.g);  // one for each machine
}

TEST(SynthAttend, GradientInOneKernel) {
  gradient(1, 9, 2, 1, 16, 16);
  gradient(2, 37, 1, 2, 20, 24);
  gradient(1, 70, 2, 3, 8, 40);
  gradient(1, 130, 1, 1, 32, 32);
}

}  // namespace
}  // namespace lumen::test
