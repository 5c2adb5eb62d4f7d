// Needs: cpu. Scans in chunks: the same function as step by step, and the same gradients, for any number of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/grad/reverse.h"
#include "graph/ir/build.h"
#include "graph/ir/eval.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pass/pass.h"
#include "graph/steps/steps.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

Graph chunked_function(const std::string& text) {
  const std::string path = std::string(LUMEN_SOURCE_DIR) + "/models/functions.lum";
  const lang::File library = lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  Scope scope;
  scope.files = {&library, &file};
  Graph g = elaborate_function(scope, file.functions.back());
  inline_calls(g);
  return g;
}

// Decays between 1 and exp(-30), two value heads of a key head across and two adjacent ones.
std::string delta_of(int steps) {
  return fmt::format(
      "fn f(q: f32[2, {0}, 2, 4], k: f32[2, {0}, 2, 4], v: f32[2, {0}, 2, 2, 2, 3], g: f32[2, {0}, 2, 2, 2], "
      "beta: f32[2, {0}, 2, 2, 2], memory: f32[2, 2, 2, 2, 4, 3]) {{\n"
      "  let n = k * rsqrt(sum(k * k, -1) + 1e-6)\n"
      "  return gated_delta(q, n, v, -exp(4.0 * g), sigmoid(3.0 * beta), memory)\n}}\n",
      steps);
}
std::string channel_delta_of(int steps) {
  return fmt::format(
      "fn f(q: f32[2, {0}, 2, 4], k: f32[2, {0}, 2, 4], v: f32[2, {0}, 2, 3], g: f32[2, {0}, 2, 4], "
      "beta: f32[2, {0}, 2], memory: f32[2, 2, 4, 3]) {{\n"
      "  let n = k * rsqrt(sum(k * k, -1) + 1e-6)\n"
      "  return channel_delta(q, n, v, -exp(4.0 * g), sigmoid(3.0 * beta), memory)\n}}\n",
      steps);
}
std::string selective_of(int steps) {
  return fmt::format(
      "fn f(x: f32[2, {0}, 2, 3, 4], b: f32[2, {0}, 2, 5], c: f32[2, {0}, 2, 5], dt: f32[2, {0}, 2, 3], a: f32[2, 3], "
      "memory: f32[2, 2, 3, 4, 5]) = selective_scan(x, b, c, exp(3.0 * dt), -exp(a), memory)\n",
      steps);
}
// The second sequence ends with padding, whose outputs have no meaning.
std::string convolution_of(int steps) {
  return fmt::format(
      "fn f(x: f32[2, {0}, 5], before: f32[2, 3, 5], w: f32[5, 4]) {{\n"
      "  let real = i32(iota([2, {0}], 1) < {0} - 3 * iota([2, 1], 0))\n"
      "  let (after, y) = short_convolution(x, before, real, w)\n"
      "  return after, y * reshape(f32(real), [2, {0}, 1])\n}}\n",
      steps);
}

std::map<std::string, Tensor> inputs_of(const Graph& g, uint64_t seed) {
  std::map<std::string, Tensor> out;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  for (const ValueId v : g.inputs()) {
    Tensor t{g[v].type, {}, {}};
    t.values.resize(elements(t.type.shape).number());
    for (double& x : t.values) x = number(random);
    out[g[v].attributes.name] = t;
  }
  return out;
}

// The function's results, and gradients by its inputs of a sum that weights each number of the results differently.
Graph with_gradients(Graph g) {
  Builder b(g);
  const std::vector<ValueId> results = g.results, inputs = g.inputs();
  ValueId loss = b.scalar(0);
  for (const ValueId r : results) {
    std::vector<int> axes;
    for (int d = 0; d < std::ssize(b.type(r).shape); ++d) axes.push_back(d);
    const ValueId places = b.convert(
        b.iota(b.type(r).shape.empty() ? Type{} : Type{b.type(r).shape, {Scalar::i32, nullptr}}, int(axes.size()) - 1),
        Scalar::f32);
    const ValueId weighted = b.mul(b.unary(ScalarOp::sin_, r), b.add(b.mul(places, b.scalar(0.3)), b.scalar(1)));
    loss = b.add(loss, b.reshape(b.reduce(weighted, Reduction::sum, axes), {}));
  }
  const std::vector<ValueId> gradients = differentiate(g, loss, inputs);
  g.results.insert(g.results.end(), gradients.begin(), gradients.end());
  g.result_names.assign(g.results.size(), "");
  return g;
}

double difference(const Tensor& a, const Tensor& b) {
  double range = 1e-3, most = 0;
  for (const double x : b.values) range = std::max(range, std::abs(x));
  EXPECT_EQ(a.values.size(), b.values.size());
  for (size_t i = 0; i < a.values.size(); ++i) most = std::max(most, std::abs(a.values[i] - b.values[i]) / range);
  return std::isfinite(most) ? most : 1;
}

size_t scans_of(const Graph& g) {
  return std::ranges::count_if(g.nodes, [](const Node& n) { return n.op == Op::scan_; });
}

using Text = std::string (*)(int);

TEST(Chunks, AreTheSameStepsAndGradients) {
  EvalOptions wide;
  wide.wide = true;
  for (const Text text : {&delta_of, &channel_delta_of, &selective_of, &convolution_of}) {
    for (const int steps : {1, 7, 8, 37, 64, 131}) {
      SCOPED_TRACE(text(steps));
      const Graph looped = chunked_function(text(steps));
      Graph chunks = looped;
      take_chunks(chunks);
      ASSERT_EQ(verify(chunks), "");
      EXPECT_EQ(print(chunks).find("= chunk "), std::string::npos);
      const Graph a = with_gradients(looped);
      Graph b = chunks;
      hoist_steps(b);
      b = with_gradients(b);
      ASSERT_EQ(verify(b), "");
      const auto inputs = inputs_of(a, steps);
      const std::vector<Tensor> want = eval(a, inputs, wide), got = eval(b, inputs, wide);
      ASSERT_EQ(want.size(), got.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(difference(got[i], want[i]), 1e-9) << "result " << i;
    }
  }
}

// In f32, chunks are not further from exact numbers than a few roundings: decays that take everything away, decays
// that keep nearly everything, resets among them, keys that are all alike.
TEST(Chunks, RoundAsStepsDo) {
  const char* const kHead =
      "fn f(q: f32[1, 64, 1, 8], k: f32[1, 64, 1, 8], v: f32[1, 64, 1, 1, 1, 8], g: f32[1, 64, 1, 1, 1], "
      "beta: f32[1, 64, 1, 1, 1], memory: f32[1, 1, 1, 1, 8, 8]) {\n";
  const std::string resets = "let decay = select(g < -0.8, -1000.0, -0.01)\n";
  for (const std::string& decay :
       {std::string("let decay = -0.0001 * abs(g)\n"), std::string("let decay = -30.0 * abs(g)\n"), resets}) {
    for (const char* keys : {"let m = k\n", "let m = k[:, 0:1, :, :] + 0.001 * k\n"}) {
      const std::string text = std::string(kHead) + decay + keys +
                               "let n = m * rsqrt(sum(m * m, -1) + 1e-6)\n"
                               "return gated_delta(q, n, v, decay, sigmoid(6.0 + beta), memory)\n}\n";
      SCOPED_TRACE(text);
      const Graph looped = chunked_function(text);
      Graph chunks = looped;
      take_chunks(chunks);
      const auto inputs = inputs_of(looped, 5);
      EvalOptions wide;
      wide.wide = true;
      const std::vector<Tensor> want = eval(looped, inputs, wide), got = eval(chunks, inputs);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(difference(got[i], want[i]), 5e-6) << "result " << i;
    }
  }
}

TEST(Chunks, AreLongestFirst) {
  Graph g = chunked_function(
      "fn next(h: f32[], x: f32[]) -> f32[], f32[] {\n  return h + x, h\n}\n"
      "fn many(h: f32[], x: f32[C]) -> f32[], f32[C] {\n"
      "  let at = iota([C], 0)\n  before[t] = h + (sum(s) select(at[s] < at[t], x[s], 0.0))\n  return h + sum(x), "
      "before\n}\n"
      "fn f(h: f32[], x: f32[91]) {\n  let (last, all) = scan(next, [h], [x], chunk = many, most = 32)\n"
      "  return last, all\n}\n");
  EXPECT_EQ(print(*parse(std::make_shared<Source>(Source{"printed", print(g)}), {}).back()), print(g));
  const auto inputs = inputs_of(g, 1);
  const std::vector<Tensor> want = eval(g, inputs);
  take_chunks(g);
  ASSERT_EQ(verify(g), "");
  std::vector<int64_t> lengths;  // of sequences: two chunks of 32, one of 16, one of 8, three steps
  for (const Node& n : g.nodes)
    if (n.op == Op::scan_) lengths.push_back(g[n.operands[1]].type.shape[0].number());
  EXPECT_EQ(lengths, (std::vector<int64_t>{2, 3}));
  const std::vector<Tensor> got = eval(g, inputs);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_LT(difference(got[i], want[i]), 1e-6);
  Graph dropped = chunked_function(delta_of(64));
  drop_chunks(dropped);
  take_chunks(dropped);
  EXPECT_EQ(scans_of(dropped), 1U);
}

TEST(Chunks, InversesAreExact) {
  for (const int size : {8, 64}) {
    const Graph g =
        chunked_function(fmt::format("fn f(l: f32[2, {0}, {0}]) {{\n  let y = unit_lower_inverse(l)\n"
                                     "  whole[n, i, j] = select(i == j, 1.0, select(j < i, l[n, i, j], 0.0))\n"
                                     "  one[n, i, j] = sum(k) y[n, i, k] * whole[n, k, j]\n  return one\n}}\n",
                                     size));
    EvalOptions wide;
    wide.wide = true;
    const std::vector<double> got = eval(g, inputs_of(g, 3), wide)[0].values;
    for (int i = 0; i < 2 * size * size; ++i)
      ASSERT_NEAR(got[i], i / size % size == i % size ? 1 : 0, 1e-6) << size << " " << i;
  }
}

}  // namespace
}  // namespace lumen::graph
