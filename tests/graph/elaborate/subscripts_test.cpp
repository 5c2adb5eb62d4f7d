// needs: none. Subscripts that are sums of multiples of indices: random convolutions, poolings and their like against
// loops; what is refused, with its message; functions of the library that are made of them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/grad/reverse.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

using Random = std::mt19937;

const lang::File& library() {
  static const lang::File file = [] {
    const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
    return lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  }();
  return file;
}

Graph graph_of(const std::string& text) {
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  Scope scope;
  scope.files = {&library(), &file};
  check_file(scope, file);
  Graph g = elaborate_function(scope, file.functions.back());
  inline_calls(g);
  EXPECT_EQ(verify(g), "");
  return g;
}

std::string refusal(const std::string& text) {
  try {
    graph_of(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

Tensor random_tensor(const Type& type, Random& random) {
  Tensor t{type, {}, {}};
  std::uniform_int_distribution<int> number(-8, 8);
  for (int64_t k = elements(type.shape).number(); k > 0; --k) t.values.push_back(number(random));
  return t;
}

std::map<std::string, Tensor> random_inputs(const Graph& g, Random& random) {
  std::map<std::string, Tensor> in;
  for (const ValueId v : g.inputs()) in[g[v].attributes.name] = random_tensor(g[v].type, random);
  return in;
}

// Element [n, h, v, c] of an image, or what stands outside.
double pixel(const Tensor& x, int64_t n, int64_t h, int64_t v, int64_t c, double outside = 0) {
  const Shape& s = x.type.shape;
  if (h < 0 || v < 0 || h >= s[1].number() || v >= s[2].number()) return outside;
  const int64_t at = ((n * s[1].number() + h) * s[2].number() + v) * s[3].number() + c;
  return x.values[static_cast<size_t>(at)];
}

int64_t pick(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

TEST(Subscripts, RandomConvolutionsAgreeWithLoops) {
  Random random(7);
  for (int round = 0; round < 120; ++round) {
    const int64_t n = pick(random, 1, 2), h = pick(random, 1, 9), w = pick(random, 1, 9), groups = pick(random, 1, 3);
    const int64_t c = pick(random, 1, 3), o = pick(random, 1, 2), kh = pick(random, 1, 3), kw = pick(random, 1, 3);
    const int64_t stride = pick(random, 1, 3), dilation = pick(random, 1, 2), padding = pick(random, 0, 3);
    const auto out = [&](int64_t extent, int64_t k) {
      const int64_t rest = extent + 2 * padding - dilation * (k - 1) - 1;
      return rest < 0 ? 0 : rest / stride + 1;
    };
    if (out(h, kh) < 1 || out(w, kw) < 1) continue;
    const std::string text = fmt::format(
        "fn f(x: f32[{}, {}, {}, {}], w: f32[{}, {}, {}, {}]) -> f32[{}, {}, {}, {}] = conv2d(x, w, stride = {}, "
        "padding = {}, dilation = {}, groups = {})",
        n, h, w, groups * c, groups * o, kh, kw, c, n, out(h, kh), out(w, kw), groups * o, stride, padding, dilation,
        groups);
    SCOPED_TRACE(text);
    const Graph g = graph_of(text);
    const auto in = random_inputs(g, random);
    const Tensor &x = in.at("x"), &k = in.at("w");
    std::vector<double> want;
    for (int64_t b = 0; b < n; ++b)
      for (int64_t y = 0; y < out(h, kh); ++y)
        for (int64_t z = 0; z < out(w, kw); ++z)
          for (int64_t r = 0; r < groups * o; ++r) {
            double sum = 0;
            for (int64_t i = 0; i < kh; ++i)
              for (int64_t j = 0; j < kw; ++j)
                for (int64_t e = 0; e < c; ++e)
                  sum += pixel(x, b, y * stride + i * dilation - padding, z * stride + j * dilation - padding,
                               r / o * c + e) *
                         pixel(k, r, i, j, e);
            want.push_back(sum);
          }
    ASSERT_EQ(eval(g, in)[0].values, want);
    Graph lean = g;
    simplify(lean);
    ASSERT_EQ(eval(lean, in)[0].values, want) << print(lean);
  }
}

TEST(Subscripts, PoolingsAgreeWithLoops) {
  Random random(8);
  for (int round = 0; round < 60; ++round) {
    const int64_t h = pick(random, 2, 9), size = pick(random, 1, 3), stride = pick(random, 1, 3);
    const int64_t padding = pick(random, 0, size - 1);
    if (h + 2 * padding < size) continue;
    const int64_t out = (h + 2 * padding - size) / stride + 1;
    for (const bool largest : {true, false}) {
      const std::string text =
          fmt::format("fn f(x: f32[2, {0}, {0}, 3]) -> f32[2, {1}, {1}, 3] = {2}_pool2d(x, {3}, {4}, {5})", h, out,
                      largest ? "max" : "avg", size, stride, padding);
      SCOPED_TRACE(text);
      const Graph g = graph_of(text);
      const auto in = random_inputs(g, random);
      const std::vector<double> got = eval(g, in)[0].values;
      size_t at = 0;
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t y = 0; y < out; ++y)
          for (int64_t z = 0; z < out; ++z)
            for (int64_t c = 0; c < 3; ++c) {
              const double outside = largest ? -std::numeric_limits<double>::infinity() : 0;
              double all = largest ? outside : 0;
              for (int64_t i = 0; i < size; ++i)
                for (int64_t j = 0; j < size; ++j) {
                  const double p = pixel(in.at("x"), b, y * stride + i - padding, z * stride + j - padding, c, outside);
                  all = largest ? std::max(all, p) : all + p / static_cast<double>(size * size);
                }
              ASSERT_NEAR(got[at++], all, 1e-5);
            }
    }
  }
}

// What the data gradient of a convolution computes, and one contraction as it does.
TEST(Subscripts, TransposedConvolutionIsTheGradient) {
  Random random(9);
  for (int round = 0; round < 40; ++round) {
    const int64_t stride = pick(random, 1, 3), dilation = pick(random, 1, 2), k = pick(random, 1, 3);
    const int64_t padding = pick(random, 0, 2), in_extent = pick(random, 4, 9);
    const int64_t rest = in_extent + 2 * padding - dilation * (k - 1) - 1;
    if (rest < 0) continue;
    const int64_t out = rest / stride + 1;
    const int64_t more = rest % stride;
    if (k == 1 && padding > 0) continue;
    SCOPED_TRACE(
        fmt::format("extent {} window {} stride {} dilation {} padding {}", in_extent, k, stride, dilation, padding));
    const Graph up = graph_of(fmt::format(
        "fn f(d: f32[2, {0}, {0}, 3], w: f32[3, {1}, {1}, 2]) -> f32[2, {2}, {2}, 2] = conv_transpose2d(d, w, stride = "
        "{3}, padding = {4}, dilation = {5}, more = {6})",
        out, k, in_extent, stride, padding, dilation, more));
    Graph down =
        graph_of(fmt::format("fn f(x: f32[2, {2}, {2}, 2], w: f32[3, {1}, {1}, 2], d: f32[2, {0}, {0}, 3]) -> f32[] = "
                             "sum(conv2d(x, w, stride = {3}, padding "
                             "= {4}, dilation = {5}) * d)",
                             out, k, in_extent, stride, padding, dilation));
    std::map<std::string, Tensor> in = random_inputs(down, random);
    down.results = differentiate(down, down.results[0], {down.find_input("x")});
    down.result_names = {""};
    simplify(down);
    int products = 0;
    for (const Node& n : down.nodes) products += n.op == Op::contract_;
    EXPECT_EQ(products, 1) << print(down);
    ASSERT_EQ(eval(down, in)[0].values, eval(up, in)[0].values) << print(down);
  }
}

// Windows of what a format holds: codes under one scale are made of the image, not of its windows; scales along what is
// summed hold for windows.
TEST(Subscripts, ProductsInFormats) {
  static const FormatLibrary formats = FormatLibrary::builtin();
  Random random(10);
  for (const char* name : {"int8", "fp8_tensor", "int8_row", "mxfp8_e4m3"}) {
    SCOPED_TRACE(name);
    const FormatRef format = formats.find(name);
    ASSERT_TRUE(format);
    Graph g = graph_of("fn f(x: f32[2, 6, 6, 32], w: f32[8, 3, 3, 32]) -> f32[2, 6, 6, 8] = conv2d(x, w, padding = 1)");
    for (Node& n : g.nodes)
      if (n.op == Op::input_ && n.attributes.name == "w") n.attributes.role = Role::parameter;
    const auto in = random_inputs(g, random);
    const std::vector<double> want = eval(g, in)[0].values;
    ProductType products(Scalar::f32, format);
    const Graph rounded = with_rounded_products(g, {}, {}, products);
    int64_t most = 0, casts = 0;
    for (const Node& n : rounded.nodes)
      if (n.op == Op::cast_ && n.type.element.format) {
        ++casts;
        most = std::max(most, elements(n.type.shape).number());
      }
    EXPECT_EQ(casts, 2);
    const bool is_whole = std::string(name) != "int8_row" && std::string(name) != "mxfp8_e4m3";
    if (is_whole) {
      EXPECT_EQ(most, 2 * 8 * 8 * 32);
    }
    const std::vector<double> got = eval(rounded, in)[0].values;
    double range = 0, error = 0;
    for (const double x : want) range = std::max(range, std::abs(x));
    for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::abs(got[i] - want[i]));
    EXPECT_LT(error, 0.05 * range);
    EXPECT_EQ(verify(rounded), "");
  }
}

TEST(Subscripts, WindowsThatDoNotOverlapAreReshapes) {
  EXPECT_EQ(print(graph_of("fn f(x: f32[6, 4]) -> f32[3, 4]\n  y[h, c] = sum(i in 0..2) x[2 * h + i, c]")),
            "graph f(%x: data tensor<6x4xf32>) {\n"
            "  %1 = reshape %x : tensor<3x2x4xf32>\n"
            "  %2 = windows %1 at=[i0, i1, i2] : tensor<3x2x4xf32>\n"
            "  %3 = reduce %2 sum axes=[1] : tensor<3x1x4xf32>\n"
            "  %4 = reshape %3 : tensor<3x4xf32> \"y\"\n"
            "  return y = %4\n"
            "}\n");
}

TEST(Subscripts, ExtentsComeFromTheTypeOtherUsesAndRanges) {
  EXPECT_NE(print(graph_of("fn f(x: f32[B, 9], k: f32[3]) -> f32[B, 7]\n  y[b, t] = sum(i) x[b, t + i] * k[i]"))
                .find("windows %x at=[i0, i1+i2] : tensor<Bx7x3xf32>"),
            std::string::npos);
  EXPECT_NE(print(graph_of("fn f(x: f32[9], k: f32[3]) {\n  y[t] = sum(i) x[2 * t + i] * k[i]\n  return y\n}"))
                .find("windows %x at=[2*i0+i1] : tensor<4x3xf32>"),  // as far as it stays inside
            std::string::npos);
  EXPECT_NE(print(graph_of("fn f(x: f32[9], k: f32[4]) {\n  y[t] = x[t + 3; 0] * k[t]\n  return y\n}"))
                .find("windows %x at=[i0+3] : tensor<4xf32>"),
            std::string::npos);
  EXPECT_NE(print(graph_of("fn f(x: f32[9]) {\n  y[a] = sum(i in 1..3) x[a + i]\n  return y\n}"))
                .find("windows %x at=[i0+i1+1] : tensor<7x2xf32>"),
            std::string::npos);
}

TEST(Subscripts, FirstSubscriptsStillPickRows) {
  EXPECT_NE(print(graph_of("fn f(x: f32[T, 4]) -> f32[T, 4]\n  y[t, c] = x[T - 1 - t, c]")).find("gather"),
            std::string::npos);
  EXPECT_NE(print(graph_of("fn f(x: f32[8, 9], p: i32[5]) -> f32[5, 7]\n  y[n, t] = sum(i in 0..3) x[p[n], t + i]"))
                .find("gather"),
            std::string::npos);
}

TEST(Subscripts, WrongOnesAreRefused) {
  const auto said = [](const std::string& body, const std::string& what) {
    const std::string got = refusal("fn f(x: f32[4, 9], k: f32[3], z: f32[9, S]) -> f32[4, 9]\n  y[a, t] = " + body);
    EXPECT_NE(got.find(what), std::string::npos) << got;
  };
  said("sum(i) x[a, t + i] * k[i]", "reads places 0 to 10 of an axis of extent 9");
  said("sum(i) x[a, t + i - 1] * k[i]", "reads places -1 to 9 of an axis of extent 9");
  said("sum(i) x[a, t - i; 0] * k[i]", "index 'i' runs backwards");
  said("sum(i) x[a, a + i] * k[i]", "index 'a' appears twice");
  said("sum(i) x[a, t * t + i; 0] * k[i]", "only the first subscript may be computed");
  said("sum(i) x[a, t + i; k] * k[i]", "the padding value is a number");
  said("sum(i) x[a, t + 2 * j; 0] * k[i]", "unknown name 'j'");
  said("sum(i) z[t, a + i; 0] * k[i]", "an index is shifted along an axis of extent S");
  said("sum(i) x[a, t + 9223372036854775807 * (i + 1); 0] * k[i]", "fit into 64 bits");
  EXPECT_NE(refusal("fn f(x: f32[9]) {\n  y[t] = sum(i in 0..3) x[t + i; 0]\n  return y\n}")
                .find("the extent of index 't' is not known"),
            std::string::npos);
  EXPECT_NE(refusal("fn f(x: f32[9]) -> f32[3] = x[0:3; 0]").find("index notation alone"), std::string::npos);
  EXPECT_NE(refusal("fn f(x: f32[9]) -> f32[9]\n  y[t; 0] = x[t]").find("tensors that are read"), std::string::npos);
}

}  // namespace
}  // namespace lumen::graph
