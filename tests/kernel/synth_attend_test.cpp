// Needs: none. Attention groups against the graph evaluator: prefill and decode, causal masks, grouped heads, keys in
// formats.
#include "graph/grad/reverse.h"
#include "synth_harness.h"

namespace lumen::test {
namespace {

using graph::Reduction;
using graph::ValueId;

// q [b, t, h, d], k and v [b, s, g, d] with h = g * r query heads; keys beyond `start` + t masked, and where there is a
// window those before `start` + t - window + 1.
void attention(int64_t batch, int64_t queries, int64_t keys, int64_t groups, int64_t repeat, int64_t depth,
               const FormatRef& format, int64_t window = 0, int64_t limit = 0) {
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
  Formula mask;  // column <= row + start and row + start < column + window
  mask.inputs = {Scalar::i32, Scalar::i32, Scalar::i32};
  const int at = mask.op(ScalarOp::add_, mask.input(0), mask.input(2)), key = mask.input(1);
  int visible = mask.op(ScalarOp::le_, key, at);
  if (window > 0) {
    const int end = mask.op(ScalarOp::add_, key, mask.integer(Scalar::i32, window));
    visible = mask.op(ScalarOp::and_, visible, mask.op(ScalarOp::lt_, at, end));
  }
  mask.outputs = {visible};
  const ValueId seen = t.b.map(mask, {row, column, start});
  s = t.b.select(seen, s, t.b.scalar(-1e30));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  t.out(t.b.contract(p, v, "bgrts", "bsgd", "btgrd"));
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

// The gradients of q, k and v in one kernel, and the attention itself in another.
void gradient(int64_t batch, int64_t length, int64_t groups, int64_t repeat, int64_t depth, int64_t width) {
  G t;
  const ValueId pairs = t.in("q", {batch, length, groups, repeat, depth / 2, 2});
  const ValueId q = t.b.reshape(pairs, G::shape({batch, length, groups, repeat, depth}));
  const ValueId k = t.in("k", {batch, length, groups, depth}), v = t.in("v", {batch, length, groups, width});
  const ValueId weight = t.in("weight", {batch, length, groups, repeat, width});
  const auto type = G::type({length, length}, Scalar::i32);
  const ValueId seen = t.b.binary(ScalarOp::le_, t.b.iota(type, 1), t.b.iota(type, 0));
  ValueId s = t.b.mul(t.b.contract(q, k, "btgrd", "bsgd", "bgrts"), t.b.scalar(0.3));
  s = t.b.select(seen, s, t.b.scalar(-1e30));
  const ValueId e = t.b.unary(ScalarOp::exp_, t.b.sub(s, t.b.reduce(s, Reduction::max, {4})));
  const ValueId p = t.b.div(e, t.b.reduce(e, Reduction::sum, {4}));
  const ValueId o = t.b.contract(p, v, "bgrts", "bsgd", "btgrd");
  const ValueId loss = t.b.reshape(t.b.reduce(t.b.mul(o, weight), Reduction::sum, {0, 1, 2, 3, 4}), {});
  for (const ValueId d : graph::differentiate(t.g, loss, {pairs, k, v})) t.out(d);
  t.out(o);
  graph::simplify(t.g);
  graph::split_contracts(t.g);
  graph::simplify(t.g);
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
