// Needs: none. Attention groups against the graph evaluator: prefill and decode, causal masks, grouped heads, keys in
// formats.
#include "synth_harness.h"

namespace lumen::test {
namespace {

using graph::Reduction;
using graph::ValueId;

// q [b, t, h, d], k and v [b, s, g, d] with h = g * r query heads; keys beyond `start` + t masked.
void attention(int64_t batch, int64_t queries, int64_t keys, int64_t groups, int64_t repeat, int64_t depth,
               const FormatRef& format) {
  G t;
  ValueId q = t.in("q", {batch, queries, groups, repeat, depth});
  ValueId k =
      format ? t.decoded(t.in("k", {batch, keys, groups, depth}, format)) : t.in("k", {batch, keys, groups, depth});
  ValueId v =
      format ? t.decoded(t.in("v", {batch, keys, groups, depth}, format)) : t.in("v", {batch, keys, groups, depth});
  const ValueId start = t.in("start", {}, Scalar::i32);
  ValueId s = t.b.mul(t.b.contract(q, k, "btgrd", "bsgd", "bgrts"), t.b.scalar(0.125));
  const auto type = G::type({queries, keys}, Scalar::i32);
  const ValueId row = t.b.iota(type, 0), column = t.b.iota(type, 1);
  const ValueId seen = t.b.binary(ScalarOp::le_, column, t.b.add(row, start));
  s = t.b.select(seen, s, t.b.scalar(-1e30));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  t.out(t.b.contract(p, v, "bgrts", "bsgd", "btgrd"));
  const std::vector<std::string> plans =
      check(t.g, {.tolerance = 1e-5, .limits = {{"start", keys}}, .machines = {"x86-64-v3"}});
  bool attends = false;
  for (const std::string& p_text : plans) attends = attends || p_text.starts_with("attend");
  EXPECT_TRUE(attends) << "fuse did not find the attention of " << batch << " " << queries << " " << keys;
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

TEST(SynthAttend, KeysInFormats) {
  attention(1, 2, 9, 2, 2, 64, format_named("q8_0"));
  attention(1, 2, 9, 2, 1, 24, format_named("f16"));
}

}  // namespace
}  // namespace lumen::test
