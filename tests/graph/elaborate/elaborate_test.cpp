// needs: none. Functions and models as graphs: their text where it is short, their values by the evaluator elsewhere.
#include "graph/elaborate/elaborate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "base/file/file.h"
#include "graph/grad/reverse.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"

namespace lumen::graph {
namespace {

lang::File parse_text(const std::string& text) {
  return lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
}

const lang::File& library() {
  static const lang::File file = [] {
    const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
    return lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  }();
  return file;
}

Graph checked(Graph g) {
  EXPECT_EQ(verify(g), "");
  return g;
}

// The last function of a text.
Graph graph_of(const std::string& text) {
  const lang::File file = parse_text(text);
  Scope scope;
  scope.files = {&library(), &file};
  check_file(scope, file);
  return checked(elaborate_function(scope, file.functions.back()));
}

std::string refusal(const std::string& text) {
  try {
    graph_of(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

Tensor tensor(std::vector<int64_t> dims, std::vector<double> values, Scalar s = Scalar::f32) {
  Tensor t;
  for (int64_t d : dims) t.type.shape.emplace_back(d);
  t.type.element.scalar = s;
  t.values = std::move(values);
  return t;
}

Tensor random_tensor(const std::vector<int64_t>& dims, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values) v = uniform(random);
  return tensor(dims, std::move(values));
}

std::vector<double> run(const Graph& g, const std::map<std::string, Tensor>& inputs, const Bindings& symbols = {}) {
  EvalOptions options;
  options.symbols = symbols;
  return eval(g, inputs, options).at(0).values;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

// ---- shapes of graphs

TEST(Elaborate, ElementwiseExpressionsBecomeOneMap) {
  EXPECT_EQ(
      print(graph_of("fn f(x: f32[N], y: f32[N]) -> f32[N] = 2 * x + y * y")),
      "graph f(%x: data tensor<Nxf32>, %y: data tensor<Nxf32>) {\n"
      "  %2 = map %x, %y (%0: f32, %1: f32) { %2 = const f32 2; %3 = mul f32 %0, %2; %4 = mul f32 %1, %1; %5 = add f32 "
      "%3, %4 } -> %5 : tensor<Nxf32>\n"
      "  return %2\n"
      "}\n");
}

TEST(Elaborate, IndexNotationBecomesAContraction) {
  EXPECT_EQ(
      print(graph_of("fn f(x: f32[M, K], w: f32[N, K]) -> f32[M, N] {\n y[m, n] = sum(k) x[m, k] * w[n, k]\n y\n}")),
      "graph f(%x: data tensor<MxKxf32>, %w: data tensor<NxKxf32>) {\n"
      "  %2 = contract %x, %w (mk,nk->mn) : tensor<MxNxf32> \"y\"\n"
      "  return y = %2\n"
      "}\n");
}

TEST(Elaborate, CallsKeepTheirNames) {
  const Graph g =
      graph_of("fn f(x: f32[B, T, 8], w: f32[4, 8], n: f32[8]) -> f32[B, T, 4] = linear(rms_norm(x, n, 1e-5), w)");
  std::vector<std::string> called;
  for (const Node& n : g.nodes)
    if (n.op == Op::call_) called.push_back(n.attributes.callee->name);
  EXPECT_EQ(called, (std::vector<std::string>{"rms_norm", "linear"}));
}

TEST(Elaborate, InstancesAreSharedByTypesAndNamedApart) {
  const Graph g = graph_of(
      "fn f(x: f32[B, 8], y: f32[B, 4]) -> f32[B, 8], f32[B, 4] = g(softmax(softmax(x)), softmax(y))\nfn g(x, y) { "
      "return x, y }\n"
      "fn h(x: f32[B, 8], y: f32[B, 4]) -> f32[B, 8], f32[B, 4] = g(softmax(softmax(x)), softmax(y))");
  std::vector<const Graph*> callees;
  for (const Node& n : g.nodes)
    if (n.op == Op::call_) callees.push_back(n.attributes.callee.get());
  ASSERT_EQ(callees.size(), 3u);
  EXPECT_EQ(callees[0], callees[1]);
  EXPECT_NE(callees[1], callees[2]);
  EXPECT_EQ(callees[2]->name, "softmax.2");
  EXPECT_EQ(print(*parse(std::make_shared<Source>(Source{"g", print(g)}), nullptr).back()), print(g));
}

TEST(Elaborate, CostlyFormulasAreNotStretched) {
  const Graph g = graph_of("fn f(x: f32[M, N], s: f32[M, 1]) -> f32[M, N] = x * exp(s)");
  ASSERT_EQ(g.nodes.size(), 4u) << print(g);
  EXPECT_EQ(print(g[2].type), "tensor<Mx1xf32>");
}

// ---- values

TEST(Elaborate, Arithmetic) {
  const Tensor x = tensor({4}, {-1.5, 0, 2, 3});
  expect_near(run(graph_of("fn f(x: f32[4]) -> f32[4] = -x ** 2 + 1"), {{"x", x}}), {-1.25, 1, -3, -8});
  expect_near(run(graph_of("fn f(x: f32[4]) -> f32[4] = if x > 0 then sqrt(x) else abs(x)"), {{"x", x}}),
              {1.5, 0, std::sqrt(2.0), std::sqrt(3.0)});
  expect_near(run(graph_of("fn f(x: f32[4]) -> f32[4] = select(x >= 0 and not (x == 2), 1.0, 0.0)"), {{"x", x}}),
              {0, 1, 0, 1});
  expect_near(run(graph_of("fn f(x: f32[4]) -> f32[4] = max(min(x, 2.5), -1.0) * 2 ** 3"), {{"x", x}}),
              {-8, 0, 16, 20});
  expect_near(run(graph_of("fn f(x: f32[4]) -> i32[4] = i32(x) / 2 + (7 % 4)"), {{"x", x}}), {2, 3, 4, 4});
  expect_near(run(graph_of("fn f(x: f32[4]) -> f32[4] = recip(x) + sign(x) + clamp(x, 0.0, 1.0)"), {{"x", x}}),
              {-2.0 / 3 - 1, 0, 2.5, 2 + 1.0 / 3});
}

TEST(Elaborate, AxisReductions) {
  const Tensor x = tensor({2, 3}, {1, 5, 3, -1, -7, 4});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> f32[M, 1] = sum(x, -1)"), {{"x", x}}, {{"M", 2}, {"N", 3}}), {9, -4});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> f32[1, N] = mean(x, 0)"), {{"x", x}}, {{"M", 2}, {"N", 3}}),
              {0, -1, 3.5});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> f32[] = mean(x)"), {{"x", x}}, {{"M", 2}, {"N", 3}}), {5.0 / 6});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> f32[M, 1] = max(x, -1) - min(x, axis = 1)"), {{"x", x}},
                  {{"M", 2}, {"N", 3}}),
              {4, 11});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> i32[M, 1] = argmax(x, -1)"), {{"x", x}}, {{"M", 2}, {"N", 3}}),
              {1, 2});
  expect_near(run(graph_of("fn f(x: f32[M, N]) -> bool[M, 1] = any(x < -5, -1)"), {{"x", x}}, {{"M", 2}, {"N", 3}}),
              {0, 1});
}

TEST(Elaborate, IndexNotation) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), w = tensor({2, 3}, {1, 0, -1, 2, 1, 1});
  const auto f = [&](const std::string& body, const std::string& result) {
    return run(graph_of("fn f(x: f32[2, 3], w: f32[2, 3]) -> " + result + " {\n" + body + "\n return y\n}"),
               {{"x", x}, {"w", w}});
  };
  expect_near(f("y[i, j] = sum(k) x[i, k] * w[j, k]", "f32[2, 2]"), {-2, 7, -2, 19});
  expect_near(f("y[k, i] = x[i, k] - w[i, k]", "f32[3, 2]"), {0, 2, 2, 4, 4, 5});
  expect_near(f("y[i] = sum(k) x[i, k] * w[i, k]", "f32[2]"), {-2, 19});
  expect_near(f("y[i] = max(k) abs(w[i, k] - 1)", "f32[2]"), {2, 1});
  expect_near(f("y[i] = mean(k) x[i, k]", "f32[2]"), {2, 5});
  expect_near(f("y[i] = sum(k in 1..3) x[i, k]", "f32[2]"), {5, 11});
  expect_near(f("y[i, j] = 2 * (sum(k) x[i, k] * w[j, k]) / 4", "f32[2, 2]"), {-1, 3.5, -1, 9.5});
  expect_near(f("y[i, j] = sum(k) x[i, k] * w[j, k] * x[1, k]", "f32[2, 2]"), {-14, 36, -20, 93});
  expect_near(f("y[i, k] = select(k > i, x[i, k], 0.0)", "f32[2, 3]"), {0, 2, 3, 0, 0, 6});
  expect_near(f("let y = sum(i, k) x[i, k] * w[i, k]", "f32[]"), {17});
  expect_near(f("y[i] = sum(k) x[i, k] * (sum(j) w[j, k])", "f32[2]"), {5, 17});
  expect_near(f("let y = sum(i, j, k) x[i, k] * w[j, k]", "f32[]"), {22});
  expect_near(f("y[i] = f32(argmin(k) w[i, k])", "f32[2]"), {2, 1});
}

TEST(Elaborate, ComputedRowsAreGathers) {
  const Tensor table = tensor({3, 2}, {1, 2, 3, 4, 5, 6}), rows = tensor({2}, {2, 0}, Scalar::i32);
  const std::map<std::string, Tensor> in = {{"table", table}, {"rows", rows}};
  const std::string head = "fn f(table: f32[3, 2], rows: i32[2]) -> ";
  expect_near(run(graph_of(head + "f32[2, 2] = table[rows]"), in), {5, 6, 1, 2});
  expect_near(run(graph_of(head + "f32[2, 1] = table[rows, 1:]"), in), {6, 2});
  expect_near(run(graph_of(head + "f32[2, 2] {\n y[d, i] = table[rows[i], d]\n y\n}"), in), {5, 1, 6, 2});
}

TEST(Elaborate, ShapesAndSlices) {
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto f = [&](const std::string& type, const std::string& body) {
    return run(graph_of("fn f(x: f32[2, 3]) -> " + type + " = " + body), {{"x", x}});
  };
  expect_near(f("f32[3, 2]", "permute(x, [1, 0])"), {1, 4, 2, 5, 3, 6});
  expect_near(f("f32[6]", "reshape(x, [-1])"), {1, 2, 3, 4, 5, 6});
  expect_near(f("f32[2]", "x[:, -1]"), {3, 6});
  expect_near(f("f32[1, 2]", "x[1:2, :2]"), {4, 5});
  expect_near(f("f32[4, 3]", "concat(x, x + 1, axis = 0)"), {1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7});
  expect_near(f("f32[2, 4]", "pad(x, [2, 4], [0, 1])"), {0, 1, 2, 3, 0, 4, 5, 6});
  expect_near(f("f32[2, 2, 3]", "broadcast(x, [2, 2, 3])"), {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6});
  expect_near(f("f32[2]", "broadcast(0.5, [shape(x, 0)])"), {0.5, 0.5});
  expect_near(f("i32[2, 3]", "iota([2, 3], -1)"), {0, 1, 2, 0, 1, 2});
}

TEST(Elaborate, LoopsBranchesAndSeveralResults) {
  const std::string text = R"(
fn halves(x: f32[2 * P]) -> f32[P], f32[P] { return x[0:2], x[2:4] }
fn f(x: f32[4], n: i32 = 3) -> f32[2] {
  let (a, b) = halves(x)
  var s = a
  for i in 0..n { if i % 2 == 0 { s = s + b * i } else { s = s - 1 } }
  return s
}
)";
  EXPECT_NE(refusal(text), "accepted") << "x[0:2] is no f32[P]";
  const Graph g = graph_of(R"(
fn swapped(a: f32[P], b: f32[P]) -> f32[P], f32[P] { return b, a }
fn f(x: f32[4], n: i32 = 3) -> f32[2] {
  let (b, a) = swapped(x[0:2], x[2:4])
  var s = a
  for i in 0..n { if i % 2 == 0 { s = s + b * i } else { s = s - 1 } }
  return s
}
)");
  expect_near(run(g, {{"x", tensor({4}, {1, 2, 3, 4})}}), {6, 9});
}

TEST(Elaborate, TablesAreConstants) {
  expect_near(run(graph_of("table steps : f32 = [0.5, -1, 2]\nfn f(i: i32[2]) -> f32[2] = steps[i] * 2"),
                  {{"i", tensor({2}, {2, 0}, Scalar::i32)}}),
              {4, 1});
}

TEST(Elaborate, StatesAreWrittenAndOldValuesRefused) {
  const Graph g = graph_of(
      "fn f(cache: state f32[4, 2], x: f32[2], at: i32) -> f32[4, 2] {\n cache = update(cache, x, at, 0)\n return "
      "cache * 1\n}");
  std::map<std::string, Tensor> states;
  const std::map<std::string, Tensor> in = {{"cache", tensor({4, 2}, std::vector<double>(8, 1))},
                                            {"x", tensor({2}, {5, 6})},
                                            {"at", tensor({}, {2}, Scalar::i32)}};
  eval(g, in, {}, &states);
  expect_near(states.at("cache").values, {1, 1, 1, 1, 5, 6, 1, 1});
  EXPECT_NE(refusal("fn f(c: state f32[4], x: f32[4]) -> f32[4] {\n let d = update(c, x)\n return c + d\n}")
                .find("before its update"),
            std::string::npos);
}

TEST(Elaborate, RandomIsAFunctionOfItsSeed) {
  const Graph g = graph_of("fn f(seed: u32) -> f32[3] = random([3], seed, 7)");
  const auto a = run(g, {{"seed", tensor({}, {5}, Scalar::u32)}});
  EXPECT_EQ(a, run(g, {{"seed", tensor({}, {5}, Scalar::u32)}}));
  EXPECT_NE(a, run(g, {{"seed", tensor({}, {6}, Scalar::u32)}}));
}

// ---- the library

TEST(Functions, TheLibraryChecks) {
  Scope scope;
  scope.files = {&library()};
  EXPECT_NO_THROW(check_file(scope, library()));
}

TEST(Functions, NormsAndActivations) {
  const Tensor x = random_tensor({2, 4}, 1), w = random_tensor({4}, 2), b = random_tensor({4}, 3);
  const auto got = run(
      graph_of(
          "fn f(x: f32[T, D], w: f32[D], b: f32[D]) -> f32[T, D] = layer_norm(x, w, b, 1e-5) + rms_norm(x, w, 1e-6)"),
      {{"x", x}, {"w", w}, {"b", b}}, {{"T", 2}, {"D", 4}});
  std::vector<double> want(8);
  for (size_t t = 0; t < 2; ++t) {
    double mean = 0, square = 0, variance = 0;
    for (size_t d = 0; d < 4; ++d) mean += x.values[t * 4 + d] / 4;
    for (size_t d = 0; d < 4; ++d) square += std::pow(x.values[t * 4 + d], 2) / 4;
    for (size_t d = 0; d < 4; ++d) variance += std::pow(x.values[t * 4 + d] - mean, 2) / 4;
    for (size_t d = 0; d < 4; ++d)
      want[t * 4 + d] = (x.values[t * 4 + d] - mean) / std::sqrt(variance + 1e-5) * w.values[d] + b.values[d] +
                        x.values[t * 4 + d] / std::sqrt(square + 1e-6) * w.values[d];
  }
  expect_near(got, want);
  const auto act = run(graph_of("fn f(x: f32[N]) -> f32[N] = silu(x) + gelu(x) + relu(x)"),
                       {{"x", tensor({2}, {-0.5, 2})}}, {{"N", 2}});
  expect_near(act, {-0.5 / (1 + std::exp(0.5)) - 0.154286, 2 / (1 + std::exp(-2.0)) + 1.954598 + 2}, 1e-4);
}

TEST(Functions, Rope) {
  const Tensor x = random_tensor({2, 3, 4}, 4), positions = tensor({2}, {0, 5}, Scalar::i32),
               frequencies = tensor({2}, {1, 0.005});
  EXPECT_NE(refusal("fn f(x: f32[T, H, 5], p: i32[T], q: f32[2]) -> f32[T, H, 5] = rope(x, p, q)").find("rope"),
            std::string::npos);
  for (const bool halves : {false, true}) {
    std::vector<double> want(24);
    for (size_t t = 0; t < 2; ++t)
      for (size_t h = 0; h < 3; ++h)
        for (size_t p = 0; p < 2; ++p) {
          const double angle = positions.values[t] * frequencies.values[p];
          const size_t i = (t * 3 + h) * 4 + (halves ? p : 2 * p), j = (t * 3 + h) * 4 + (halves ? p + 2 : 2 * p + 1);
          want[i] = 1.5 * (x.values[i] * std::cos(angle) - x.values[j] * std::sin(angle));
          want[j] = 1.5 * (x.values[i] * std::sin(angle) + x.values[j] * std::cos(angle));
        }
    SCOPED_TRACE(halves);
    const Graph g = graph_of(std::string("fn f(x: f32[T, H, 4], p: i32[T], q: f32[2]) -> f32[T, H, 4] = ") +
                             (halves ? "rope_halves" : "rope") + "(x, p, q, 1.5)");
    expect_near(run(g, {{"x", x}, {"p", positions}, {"q", frequencies}}, {{"T", 2}, {"H", 3}}), want);
  }
}

std::vector<double> attention(const Tensor& q, const Tensor& k, const Tensor& v, size_t T, size_t S, size_t KV,
                              size_t G, size_t D, size_t past) {
  std::vector<double> out(T * KV * G * D);
  for (size_t t = 0; t < T; ++t)
    for (size_t h = 0; h < KV; ++h)
      for (size_t g = 0; g < G; ++g) {
        std::vector<double> p(S, 0);
        double top = -1e30, total = 0;
        for (size_t s = 0; s <= t + past; ++s) {
          for (size_t d = 0; d < D; ++d)
            p[s] += q.values[((t * KV + h) * G + g) * D + d] * k.values[(s * KV + h) * D + d];
          p[s] /= std::sqrt(static_cast<double>(D));
          top = std::max(top, p[s]);
        }
        for (size_t s = 0; s <= t + past; ++s) total += p[s] = std::exp(p[s] - top);
        for (size_t s = 0; s <= t + past; ++s)
          for (size_t d = 0; d < D; ++d)
            out[((t * KV + h) * G + g) * D + d] += p[s] / total * v.values[(s * KV + h) * D + d];
      }
  return out;
}

TEST(Functions, AttentionWithGroupedHeads) {
  const Tensor q = random_tensor({1, 3, 4, 2}, 5), k = random_tensor({1, 3, 2, 2}, 6),
               v = random_tensor({1, 3, 2, 2}, 7);
  const Graph g = graph_of(
      "fn f(q: f32[B, T, 4, 2], k: f32[B, T, 2, 2], v: f32[B, T, 2, 2]) -> f32[B, T, 4, 2] = causal_attention(q, k, "
      "v)");
  expect_near(run(g, {{"q", q}, {"k", k}, {"v", v}}, {{"B", 1}, {"T", 3}}), attention(q, k, v, 3, 3, 2, 2, 2, 0));
}

TEST(Functions, AttentionAfterAPast) {
  const Tensor q = random_tensor({1, 2, 2, 1, 4}, 8), k = random_tensor({1, 5, 2, 4}, 9),
               v = random_tensor({1, 5, 2, 4}, 10);
  const std::string types = "q: f32[B, T, 2, 1, 4], k: f32[B, S, 2, 4], v: f32[B, S, 2, 4]";
  const auto want = attention(q, k, v, 2, 5, 2, 1, 4, 3);
  const Bindings symbols = {{"B", 1}, {"T", 2}, {"S", 5}};
  expect_near(run(graph_of("fn f(" + types + ") -> f32[B, T, 2, 1, 4] = attention(q, k, v, 3)"),
                  {{"q", q}, {"k", k}, {"v", v}}, symbols),
              want);
  const Graph g = graph_of("fn f(" + types + ", past: i32) -> f32[B, T, 2, 1, 4] = attention(q, k, v, past)");
  expect_near(run(g, {{"q", q}, {"k", k}, {"v", v}, {"past", tensor({}, {3}, Scalar::i32)}}, symbols), want);
}

// Two texts of different lengths in pages of two places: keys are remembered where the places say, found by the pages,
// and equal those of a text alone.
TEST(Functions, AttentionOverPages) {
  const Tensor q = random_tensor({1, 4, 2, 1, 4}, 8), k = random_tensor({1, 4, 2, 4}, 9),
               v = random_tensor({1, 4, 2, 4}, 10);
  const Tensor keys = random_tensor({3, 2, 5, 2, 4}, 11), values = random_tensor({3, 2, 5, 2, 4}, 12);
  // Text 0 stands at positions 3 and 4, text 1 at 0; its second token is not written.
  const std::vector<double> pages = {4, 0, 2, 3, 0, 0}, positions = {3, 4, 0, 0}, places = {1, 4, 6, -1};
  const Graph g = graph_of(
      "fn f(q: f32[1, B * T, 2, 1, 4], k: f32[1, B * T, 2, 4], v: f32[1, B * T, 2, 4], at: i32[B, T], places: i32[B, "
      "T], "
      "pages: i32[B, K], keys: state f32[3, 2, C, P, 4], values: state f32[3, 2, C, P, 4]) -> f32[1, B * T, 2, 1, 4] "
      "{\n"
      "  let found = page_places(pages, P)\n"
      "  let ks = remember_pages(keys, 1, k, places)\n"
      "  let vs = remember_pages(values, 1, v, places)\n"
      "  return paged_attention(q, recall_pages(ks, 1, found), recall_pages(vs, 1, found), at)\n"
      "}");
  const auto got = run(g,
                       {{"q", q},
                        {"k", k},
                        {"v", v},
                        {"at", tensor({2, 2}, positions, Scalar::i32)},
                        {"places", tensor({2, 2}, places, Scalar::i32)},
                        {"pages", tensor({2, 3}, pages, Scalar::i32)},
                        {"keys", keys},
                        {"values", values}},
                       {{"B", 2}, {"T", 2}, {"K", 3}, {"C", 5}, {"P", 2}});
  // The first three tokens, each as its text alone has it.
  for (const size_t token : {0U, 1U, 2U}) {
    const size_t text = token / 2, length = static_cast<size_t>(positions[token]) + 1;
    Tensor one = tensor({1, 1, 2, 1, 4}, {q.values.begin() + static_cast<int64_t>(token * 8),
                                          q.values.begin() + static_cast<int64_t>(token * 8 + 8)});
    std::vector<double> own_keys, own_values;
    for (size_t s = 0; s < length; ++s)
      for (size_t h = 0; h < 2; ++h)
        for (size_t d = 0; d < 4; ++d) {
          const auto place = static_cast<size_t>(pages[text * 3 + s / 2] * 2) + s % 2;
          double key = keys.values[((2 + h) * 10 + place) * 4 + d],
                 value = values.values[((2 + h) * 10 + place) * 4 + d];
          for (size_t t = 0; t < 4; ++t)  // written in this step
            if (static_cast<size_t>(places[t]) == place) {
              key = k.values[(t * 2 + h) * 4 + d];
              value = v.values[(t * 2 + h) * 4 + d];
            }
          own_keys.push_back(key);
          own_values.push_back(value);
        }
    const auto n = static_cast<int64_t>(length);
    const auto want = attention(one, tensor({1, n, 2, 4}, own_keys), tensor({1, n, 2, 4}, own_values), 1, length, 2, 1,
                                4, length - 1);
    expect_near({got.begin() + static_cast<int64_t>(token * 8), got.begin() + static_cast<int64_t>(token * 8 + 8)},
                want);
  }
}

TEST(Functions, CrossEntropyIsStable) {
  const Tensor logits = tensor({2, 3}, {1000, 1001, 999, -3, 0, 2}), targets = tensor({2}, {1, 2}, Scalar::i32);
  const double first = std::log(std::exp(-1.0) + 1 + std::exp(-2.0)),
               second = std::log(std::exp(-5.0) + std::exp(-2.0) + 1);
  const std::string types = "(x: f32[N, V], t: i32[N]) -> ";
  const Bindings symbols = {{"N", 2}, {"V", 3}};
  expect_near(run(graph_of("fn f" + types + "f32[N] = cross_entropy(x, t)"), {{"x", logits}, {"t", targets}}, symbols),
              {first, second}, 1e-4);
  expect_near(
      run(graph_of("fn f" + types + "f32[] = mean_cross_entropy(x, t)"), {{"x", logits}, {"t", targets}}, symbols),
      {(first + second) / 2}, 1e-4);
}

// ---- models

const char* const kModel = R"(
model tiny(cfg) : gguf "tiny" {
  config {
    vocab : i32 = 7
    hidden : i32 = 4
    layers : i32 = 2
    head_dim : i32 = cfg.hidden / cfg.heads
    heads : i32 = 2
    eps : f32 = 1e-5
    bias : i32 = 0
  }
  size big-1.5b { hidden = 8; heads = 4 }
  param embed : f32[cfg.vocab, cfg.hidden], role embedding, init normal 0.05
  layers cfg.layers {
    param w : f32[cfg.hidden, cfg.heads * cfg.head_dim], gguf "blk.{i}.w", hf "m.{i}.w", role mix, optional
    param b : f32[cfg.hidden], when (cfg.bias != 0), init zeros
  }
  param out : f32[cfg.vocab, cfg.hidden], role output
  fn block(l, x) {
    let h = linear(x, l.w)
    if cfg.bias != 0 { return x + h + l.b } else { return x + h * (l.index + 1) }
  }
  fn forward(tokens: i32[B, T]) -> f32[B, T, cfg.vocab] {
    var x = embed[tokens]
    for l in layers { x = block(l, x) }
    return linear(x, out)
  }
  fn loss(tokens: i32[B, T], targets: i32[B, T]) -> f32[] = mean_cross_entropy(forward(tokens), targets)
}
)";

TEST(Models, Configs) {
  const lang::File f = parse_text(kModel);
  Config c = model_config(f.models[0], "", {});
  EXPECT_EQ(c.at("head_dim"), 2);
  c = model_config(f.models[0], "big-1.5b", {{"vocab", 11}});
  EXPECT_EQ(c.at("head_dim"), 2);
  EXPECT_EQ(c.at("hidden"), 8);
  EXPECT_EQ(c.at("vocab"), 11);
  EXPECT_THROW(model_config(f.models[0], "small", {}), Error);
  EXPECT_THROW(model_config(f.models[0], "", {{"hiden", 3}}), Error);
  EXPECT_THROW(model_config(f.models[0], "", {{"hidden", 3.5}}), Error);
}

TEST(Models, Parameters) {
  const lang::File f = parse_text(kModel);
  Scope scope;
  scope.files = {&library(), &f};
  const auto names = [&](const Config& config) {
    std::vector<std::string> out;
    for (const ModelParameter& p : model_parameters(scope, f.models[0], config)) out.push_back(p.name);
    return out;
  };
  EXPECT_EQ(names(model_config(f.models[0], "", {})),
            (std::vector<std::string>{"embed", "out", "layers.0.w", "layers.1.w"}));
  EXPECT_EQ(names(model_config(f.models[0], "", {{"bias", 1}, {"layers", 1}})),
            (std::vector<std::string>{"embed", "out", "layers.0.w", "layers.0.b"}));
  const auto all = model_parameters(scope, f.models[0], model_config(f.models[0], "", {}));
  EXPECT_EQ(all[0].init_scale, 0.05);
  EXPECT_EQ(all[0].role, "embedding");
  EXPECT_EQ(all[3].gguf, "blk.1.w");
  EXPECT_EQ(all[3].hf, "m.1.w");
  EXPECT_TRUE(all[3].optional);
  EXPECT_EQ(all[3].shape, (Shape{4, 4}));
}

TEST(Models, FunctionsBecomeGraphs) {
  const lang::File f = parse_text(kModel);
  Scope scope;
  scope.files = {&library(), &f};
  check_file(scope, f);
  const Graph g = checked(elaborate_model(scope, f.models[0], "loss", model_config(f.models[0], "", {})));
  std::vector<std::string> inputs, labels;
  for (ValueId v : g.inputs()) inputs.push_back(g[v].attributes.name);
  for (const Node& n : g.nodes) labels.push_back(n.label);
  EXPECT_EQ(inputs, (std::vector<std::string>{"tokens", "targets", "embed", "layers.0.w", "layers.1.w", "out"}));
  EXPECT_NE(std::find(labels.begin(), labels.end(), "layers.1.h"), labels.end());
  EXPECT_TRUE(g[g.results[0]].type.shape.empty());

  std::map<std::string, Tensor> in = {{"tokens", tensor({1, 2}, {3, 6}, Scalar::i32)},
                                      {"targets", tensor({1, 2}, {6, 0}, Scalar::i32)},
                                      {"embed", random_tensor({7, 4}, 1)},
                                      {"layers.0.w", random_tensor({4, 4}, 2)},
                                      {"layers.1.w", random_tensor({4, 4}, 3)},
                                      {"out", random_tensor({7, 4}, 4)}};
  double want = 0;
  for (size_t t = 0; t < 2; ++t) {
    std::vector<double> x(4);
    for (size_t d = 0; d < 4; ++d) x[d] = in["embed"].values[static_cast<size_t>(in["tokens"].values[t]) * 4 + d];
    for (int l = 0; l < 2; ++l) {
      const auto& w = in[l == 0 ? "layers.0.w" : "layers.1.w"].values;
      std::vector<double> h(4);
      for (size_t n = 0; n < 4; ++n)
        for (size_t k = 0; k < 4; ++k) h[n] += x[k] * w[n * 4 + k];
      for (size_t d = 0; d < 4; ++d) x[d] += h[d] * (l + 1);
    }
    std::vector<double> y(7);
    double total = 0;
    for (size_t n = 0; n < 7; ++n) {
      for (size_t k = 0; k < 4; ++k) y[n] += x[k] * in["out"].values[n * 4 + k];
      total += std::exp(y[n]);
    }
    want += (std::log(total) - y[static_cast<size_t>(in["targets"].values[t])]) / 2;
  }
  expect_near(run(g, in, {{"B", 1}, {"T", 2}}), {want}, 1e-4);
}

// ---- configs with texts, truth values and lists; models that extend others

lang::File models_of(const std::string& text) {
  return lang::parse_file(std::make_shared<Source>(Source{"m.lum", text}));
}

const char* const kKinds = R"(model base(cfg) {
  config {
    layers : i32 = 3
    kind   : text = "plain", choices "plain" "gated"
    wide   : bool = 1
    size   : i32 = if cfg.kind == "gated" then 4 else 2
    local  : bool[cfg.layers] = (i + 1) % 2 != 0
    scales : f32[cfg.size] = i * 0.5
  }
  param table : f32[cfg.size], init each (cfg.scales[j] + 1.0)
  layers cfg.layers { param w : f32[2], when (cfg.local[i]) }
  fn factor() = 2.0
  fn run(x: f32[2]) -> f32[2] {
    var y = x
    for l in layers { if cfg.local[l.index] { y = y + l.w * factor() } }
    return if cfg.wide then y else -y
  }
}
)";

TEST(Models, TextsTruthAndLists) {
  const lang::File f = models_of(kKinds);
  const lang::ModelDecl& m = f.models[0];
  const Scope scope;
  check_file(scope, f);
  const Config c = model_config(m, "", {});
  EXPECT_EQ(c.at("size"), 2);
  EXPECT_EQ(c.at("local.0") + 2 * c.at("local.1") + 4 * c.at("local.2"), 5);
  EXPECT_FALSE(c.contains("local"));
  const Config gated = model_config(m, "", {{"kind", 1}, {"local", 0}, {"scales.3", 7}});
  EXPECT_EQ(gated.at("size"), 4);
  EXPECT_EQ(gated.at("local.0") + gated.at("local.2"), 0);
  EXPECT_EQ(gated.at("scales.3"), 7);
  const auto parameters = model_parameters(scope, m, c);
  ASSERT_EQ(parameters.size(), 3U);
  EXPECT_EQ(parameters[0].init_values, (std::vector<double>{1, 1.5}));
  EXPECT_EQ(parameters[2].name, "layers.2.w");
  const Graph g = elaborate_model(scope, m, "run", model_config(m, "", {{"wide", 0}}));
  expect_near(
      run(g,
          {{"x", tensor({2}, {1, 2})}, {"layers.0.w", tensor({2}, {10, 20})}, {"layers.2.w", tensor({2}, {100, 200})}},
          {}),
      {-221, -442});
  EXPECT_THROW(model_config(m, "", {{"kind", 2}}), Error);
  EXPECT_THROW(model_config(m, "", {{"local.3", 1}}), Error);
  EXPECT_THROW(model_config(m, "", {{"size.0", 1}}), Error);
}

// A parameter that the config leaves out has no values: what reads it is refused, and nobody computes with zeros.
TEST(Models, AbsentParametersAreNotRead) {
  const auto refusal_with = [](const std::string& more) {
    const lang::File f =
        models_of("model m(cfg) {\n  config { layers : i32 = 2 }\n  layers cfg.layers { param w : f32[2]\n" +
                  std::string("    param gone : f32[2], when (i == 0)") + more +
                  " }\n  fn run(x: f32[2]) -> f32[2] {\n    var y = x\n    for l in layers { y = y + l.gone }\n"
                  "    return y\n  }\n}\n");
    try {
      (void)elaborate_model(Scope(), f.models[0], "run", model_config(f.models[0], "", {}));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal_with("").find("'layers.1.gone'"), std::string::npos) << refusal_with("");
  EXPECT_EQ(refusal_with(", absent_says \"no such thing\""), "no such thing");
}

// Formats are assigned by names of parameters and of values: those of one name are told apart.
TEST(Models, ValuesNamedAsParametersHaveLabelsOfTheirOwn) {
  const lang::File f = models_of(R"(model m(cfg) {
  config { layers : i32 = 1 }
  layers cfg.layers { param w : f32[2] }
  fn run(x: f32[2]) -> f32[2] {
    var y = x
    for l in layers {
      let w = y * l.w
      let v = w + 1.0
      y = v * w
    }
    return y
  }
})");
  const Graph g = elaborate_model(Scope(), f.models[0], "run", model_config(f.models[0], "", {}));
  std::vector<std::string> labels;
  for (const Node& n : g.nodes)
    if (!n.label.empty()) labels.push_back(n.label);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), "layers.0.w"), 0);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), "layers.0.w.value"), 1);
  EXPECT_EQ(std::count(labels.begin(), labels.end(), "layers.0.v"), 1);
}

TEST(Models, ExtendOthers) {
  const lang::File f = models_of(std::string(kKinds) + R"(
model more(cfg) : extends base {
  config { layers : i32 = 2
           other : i32 = 5 }
  layers cfg.layers { param w : f32[2] }
  fn factor() = 3.0
})");
  Scope scope;
  scope.files.push_back(&f);
  check_file(scope, f);
  const lang::ModelDecl m = complete_model(scope, f.models[1]);
  const Config c = model_config(m, "", {});
  EXPECT_EQ(c.at("layers") + c.at("other"), 7);
  EXPECT_EQ(model_parameters(scope, m, c).size(), 3U);  // the condition of `w` is gone
  expect_near(
      run(elaborate_model(scope, m, "run", c), {{"x", tensor({2}, {1, 2})}, {"layers.0.w", tensor({2}, {10, 20})}}, {}),
      {31, 62});
}

TEST(Models, RefusedExtensionsAndKeys) {
  const auto refused = [](const std::string& text) {
    const lang::File f = models_of(text);
    try {
      check_file(Scope(), f);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(refused("model a(cfg) : extends b { }").find("no model 'b'"), std::string::npos);
  EXPECT_NE(refused("model a(cfg) : extends a { }").find("too long a chain"), std::string::npos);
  EXPECT_NE(refused("model a(cfg) { config { k : text = \"x\" } }").find("choices"), std::string::npos);
  EXPECT_NE(refused("model a(cfg) { config { k : text = \"x\", choices \"y\" } }").find("no choice"),
            std::string::npos);
  EXPECT_NE(refused("model a(cfg) { config { k : i32[3, 4] = 1 } }").find("one axis"), std::string::npos);
  EXPECT_NE(refused("model a(cfg) { config { n : i32 = cfg.k[0]\n k : i32[cfg.n] = 1 } }").find("depends on itself"),
            std::string::npos);
}

TEST(Functions, LargestPrefersTheFirstOfEquals) {
  const auto got = run(graph_of("fn f(x: f32[N, 5]) -> i32[N, 3] = largest(x, 3)"),
                       {{"x", tensor({2, 5}, {1, 3, 3, 0, 3, 2, 2, 2, 2, 2})}}, {{"N", 2}});
  expect_near(got, {1, 2, 4, 0, 1, 2});
}

TEST(Functions, SortedOrderIsStable) {
  const Graph g =
      graph_of("fn f(k: i32[A]) -> i32[A], i32[A] { let (order, rank) = sorted_order(k)\n return order, rank }");
  EvalOptions o;
  o.symbols = {{"A", 6}};
  const auto got = eval(g, {{"k", tensor({6}, {2, 0, 2, 1, 0, 2}, Scalar::i32)}}, o);
  expect_near(got[0].values, {1, 4, 3, 0, 2, 5});
  expect_near(got[1].values, {3, 0, 4, 2, 1, 5});
}

TEST(Functions, WindowsLimitsAndScalesOfAttention) {
  const Tensor q = random_tensor({1, 6, 1, 1, 2}, 8), k = random_tensor({1, 6, 1, 2}, 9),
               v = random_tensor({1, 6, 1, 2}, 10);
  const auto got =
      run(graph_of("fn f(q: f32[B, T, 1, 1, 2], k: f32[B, T, 1, 2], v: f32[B, T, 1, 2]) -> f32[B, T, 1, 1, 2] = "
                   "attention(q, k, v, 0, 3, 0.5, 0.8)"),
          {{"q", q}, {"k", k}, {"v", v}}, {{"B", 1}, {"T", 6}});
  std::vector<double> want(12);
  for (size_t t = 0; t < 6; ++t) {
    double total = 0;
    for (size_t s = t < 2 ? 0 : t - 2; s <= t; ++s) {  // three positions, itself among them
      const double dot = q.values[t * 2] * k.values[s * 2] + q.values[t * 2 + 1] * k.values[s * 2 + 1];
      const double p = std::exp(0.5 * std::tanh(0.8 * dot / 0.5));
      total += p;
      for (size_t d = 0; d < 2; ++d) want[t * 2 + d] += p * v.values[s * 2 + d];
    }
    for (size_t d = 0; d < 2; ++d) want[t * 2 + d] /= total;
  }
  expect_near(got, want);
}

TEST(Builtins, EachIsComputedInDoublePrecision) {
  const auto got = run(graph_of("fn f(x: f32[4]) -> f32[4] = x * each(i, 4, 10000.0 ** (-2.0 * i / 7) - 1.0)"),
                       {{"x", tensor({4}, {1, 1, 1, 1})}}, {});
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(got[i], static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / 7) - 1.0));
  EXPECT_NE(refusal("fn f(x: f32[4]) -> f32[4] = x * each(3, 4, 1.0)").find("name of its index"), std::string::npos);
  EXPECT_NE(refusal("fn f(x: f32[4]) -> f32[4] = x * each(i, 4, x)").find("known when the graph is built"),
            std::string::npos);
}

// A file's number of layers is no reason to compute for minutes.
TEST(Models, ListsOfTheConfigHaveABound) {
  const std::string text =
      "model m(cfg) {\n  config {\n    layers : i32 = 2\n    each : i32[cfg.layers] = i\n  }\n"
      "  fn f(x: f32[N]) -> f32[N] = x\n}\n";
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  EXPECT_EQ(model_config(file.models[0], "", {{"layers", 1024}}).at("each.1023"), 1023);
  try {
    model_config(file.models[0], "", {{"layers", 65535}});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("'each' would have 65535 values"), std::string::npos) << e.what();
  }
}

TEST(Models, EveryFamilyOfTheLibraryElaborates) {
  std::vector<lang::File> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(LUMEN_SOURCE_DIR) / "models"))
    if (entry.path().extension() == ".lum")
      files.push_back(
          lang::parse_file(std::make_shared<Source>(Source{entry.path().filename(), read_file(entry.path())})));
  Scope scope;
  for (const lang::File& f : files) scope.files.push_back(&f);
  int functions = 0;
  for (const lang::File& f : files)
    for (const lang::ModelDecl& declared : f.models) {
      if (is_optimizer(declared)) continue;
      SCOPED_TRACE(declared.name);
      const lang::ModelDecl m = complete_model(scope, declared);
      if (std::any_of(m.attributes.begin(), m.attributes.end(), [](const auto& a) { return a.name == "part"; }))
        continue;
      // The size "config.json" has defaults of files, and is no model.
      const auto size = std::ranges::find_if(m.sizes, [](const auto& s) { return s.name != "config.json"; });
      const Config config = model_config(m, size == m.sizes.end() ? "" : size->name, {});
      EXPECT_FALSE(model_parameters(scope, m, config).empty());
      for (const lang::Function& fn : m.functions) {
        if (!std::all_of(fn.params.begin(), fn.params.end(), [](const lang::Param& p) { return p.type.has_value(); }))
          continue;
        SCOPED_TRACE(m.name + "." + fn.name);
        try {
          checked(elaborate_model(scope, m, fn.name, config));
          ++functions;
        } catch (const Error& e) {
          // A family of embeddings refuses what it inherits, by a sentence of its text.
          if (std::string_view(e.what()).find("predicts no tokens") == std::string_view::npos)
            ADD_FAILURE() << e.what();
        }
      }
    }
  EXPECT_GE(functions, 3);
}

// Gates far below zero have a gradient of nothing, not one of zero times infinity.
TEST(Elaborate, GradientsOfGatesAreFinite) {
  Graph g = graph_of("fn f(x: f32[N]) -> f32[] { return reshape(sum(silu(x) + sigmoid(x), -1), []) }");
  const ValueId x = g.inputs().at(0);
  g.results = differentiate(g, g.results.at(0), {x});
  g.result_names = {"dx"};
  const std::vector<double> at{-1e30, -3e4, -104, -89, -88, -30, 0, 30, 89, 3e4, 1e30};
  const Tensor gradient = eval(g, {{"x", tensor({static_cast<int64_t>(at.size())}, at)}}).at(0);
  for (size_t i = 0; i < at.size(); ++i) {
    EXPECT_TRUE(std::isfinite(gradient.values[i])) << at[i];
    EXPECT_NEAR(gradient.values[i], at[i] < -20 ? 0 : at[i] > 20 ? 1 : 0.75, 1e-6) << at[i];
  }
}

}  // namespace
}  // namespace lumen::graph
