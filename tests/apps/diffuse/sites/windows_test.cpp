// Needs: none. Convolutions as sites: what is found of them, windows cut out of images, and products of codes against
// plain loops over windows, with padding, strides and channels that were joined; bit for bit.
#include "apps/diffuse/sites/windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "apps/diffuse/sites/quantized_products.h"
#include "apps/diffuse/sites/read_values.h"
#include "base/error.h"
#include "graph/ir/eval.h"
#include "graph/ir/verify.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

FormatRef window_format(const std::string& name) {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all.get(name);
}

// An image [n, h, w, a + b] joined of two, its windows and a weight [o, kh, kw, a + b].
struct ConvolutionCase {
  int64_t n = 2, h = 5, w = 6, a = 2, b = 3, o = 4, kh = 3, kw = 2, stride = 1, pad = 1;
  bool is_silu = false;
  int64_t channels() const { return a + b; }
  int64_t places() const { return kh * kw; }
  int64_t columns() const { return places() * channels(); }
  int64_t high() const { return (h + 2 * pad - kh) / stride + 1; }
  int64_t wide() const { return (w + 2 * pad - kw) / stride + 1; }
  int64_t rows() const { return n * high() * wide(); }
};

Shape dims(std::initializer_list<int64_t> extents) {
  Shape out;
  for (const int64_t e : extents) out.emplace_back(e);
  return out;
}

ValueId windows_of(Builder& build, const ConvolutionCase& c, ValueId x) {
  const int64_t s = c.stride;
  const ValueId padded =
      c.pad > 0 ? build.pad(x, dims({c.n, c.h + 2 * c.pad, c.w + 2 * c.pad, c.channels()}), {0, c.pad, c.pad, 0}) : x;
  return build.windows(padded, {0, 0, 0, 0},
                       {1, 0, 0, 0, 0, 0, /**/ 0, s, 1, 0, 0, 0, /**/ 0, 0, 0, s, 1, 0, /**/ 0, 0, 0, 0, 0, 1},
                       dims({c.n, c.high(), c.kh, c.wide(), c.kw, c.channels()}));
}

Graph convolution(const ConvolutionCase& c) {
  Graph g;
  Builder build(g);
  const ValueId a = build.input("a", Role::data, {dims({c.n, c.h, c.w, c.a}), {}});
  const ValueId b = build.input("b", Role::data, {dims({c.n, c.h, c.w, c.b}), {}});
  const ValueId weight = build.input("w", Role::parameter, {dims({c.o, c.kh, c.kw, c.channels()}), {}});
  ValueId x = build.concat({a, b}, 3);
  if (c.is_silu)
    x = build.div(x, build.add(build.unary(ScalarOp::exp_, build.unary(ScalarOp::neg_, x)), build.scalar(1)));
  g.results = {build.contract(windows_of(build, c, x), weight, "nhivjc", "oijc", "nhvo")};
  g.result_names = {"y"};
  EXPECT_EQ(verify(g), "");
  return g;
}

// The image by plain indices; 0 around it.
float image_at(const ConvolutionCase& c, const std::vector<float>& x, int64_t n, int64_t row, int64_t column,
               int64_t channel) {
  if (row < 0 || row >= c.h || column < 0 || column >= c.w) return 0;
  return x[((n * c.h + row) * c.w + column) * c.channels() + channel];
}

// What row m (of n, h, w) reads: a window, place by place.
std::vector<float> window_at(const ConvolutionCase& c, const std::vector<float>& x, int64_t m) {
  const int64_t n = m / (c.high() * c.wide()), h = m / c.wide() % c.high(), w = m % c.wide();
  std::vector<float> out;
  for (int64_t i = 0; i < c.kh; ++i)
    for (int64_t j = 0; j < c.kw; ++j)
      for (int64_t k = 0; k < c.channels(); ++k)
        out.push_back(image_at(c, x, n, h * c.stride + i - c.pad, w * c.stride + j - c.pad, k));
  return out;
}

std::vector<float> some_numbers(std::mt19937& random, int64_t count, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> out(count);
  for (float& v : out) v = float(normal(random));
  return out;
}

Tensor held_tensor(const Type& type, const std::vector<float>& values) {
  Tensor out;
  out.type = type;
  out.values.assign(values.begin(), values.end());
  return out;
}

// The two images that were joined.
std::map<std::string, Tensor> images_in(const ConvolutionCase& c, const std::vector<float>& x) {
  std::vector<float> a, b;
  for (size_t i = 0; i < x.size(); ++i) (int64_t(i) % c.channels() < c.a ? a : b).push_back(x[i]);
  return {{"a", held_tensor({dims({c.n, c.h, c.w, c.a}), {}}, a)},
          {"b", held_tensor({dims({c.n, c.h, c.w, c.b}), {}}, b)}};
}

std::vector<ConvolutionCase> convolution_cases() {
  return {{},
          {.stride = 2},
          {.kh = 1, .kw = 1, .pad = 0},
          {.h = 7, .kh = 4, .kw = 3, .stride = 3, .pad = 2},
          {.h = 1, .kh = 1, .kw = 3, .pad = 0}};
}

TEST(ConvolutionSites, AreFound) {
  for (const ConvolutionCase& c : convolution_cases()) {
    const std::vector<ProductSite> sites = product_sites(convolution(c));
    ASSERT_EQ(sites.size(), 1U);
    EXPECT_EQ(sites[0].weight, "w");
    EXPECT_EQ(sites[0].rows, c.o);
    EXPECT_EQ(sites[0].columns, c.columns());
    EXPECT_EQ(sites[0].window, (std::vector<int64_t>{c.kh, c.kw}));
    EXPECT_EQ(sites[0].places(), c.places());
    EXPECT_EQ(sites[0].column_segments, (std::vector<int64_t>{c.a * c.places(), c.b * c.places()}));
    EXPECT_TRUE(sites[0].row_segments.empty());
    EXPECT_FALSE(sites[0].is_polar);
    EXPECT_TRUE(left_weights(convolution(c)).empty());
  }
  const std::vector<ProductSite> polar = product_sites(convolution({.is_silu = true}));
  EXPECT_TRUE(polar.at(0).is_polar);
  EXPECT_TRUE(polar[0].column_segments.empty()) << "what SiLU gave is one image";
}

TEST(ConvolutionSites, CutResults) {
  const ConvolutionCase c;
  Graph g = convolution(c);
  Builder build(g);
  const ValueId y = g.results[0];
  g.results = {build.slice(y, {0, 0, 0, 0}, dims({c.n, c.high(), c.wide(), 1})),
               build.slice(y, {0, 0, 0, 1}, dims({c.n, c.high(), c.wide(), 3}))};
  g.result_names = {"first", "rest"};
  EXPECT_EQ(product_sites(g).at(0).row_segments, (std::vector<int64_t>{1, 3}));
}

// In groups, through a view, or read by something else: told, with the reason.
TEST(ConvolutionSites, WhatIsLeft) {
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, {dims({3, 2, 4}), {}});
  const ValueId grouped = build.input("grouped", Role::parameter, {dims({2, 5, 4}), {}});
  const ValueId viewed = build.input("viewed", Role::parameter, {dims({20, 2}), {}});
  const ValueId twice = build.input("twice", Role::parameter, {dims({5, 4}), {}});
  const ValueId first = build.input("turned", Role::parameter, {dims({4, 5}), {}});
  g.results = {build.contract(x, grouped, "mgc", "goc", "mgo"),
               build.contract(x, build.reshape(viewed, dims({10, 4})), "mgc", "oc", "mgo"),
               build.contract(x, twice, "mgc", "oc", "mgo"), build.slice(twice, {0, 0}, dims({1, 4})),
               build.contract(x, first, "mgc", "co", "mgo")};
  g.result_names = {"a", "b", "c", "d", "e"};
  EXPECT_TRUE(product_sites(g).empty());
  std::map<std::string, std::string> left;
  for (const LeftWeight& one : left_weights(g)) left[one.weight] = one.why;
  ASSERT_EQ(left.size(), 4U);
  EXPECT_NE(left["grouped"].find("groups"), std::string::npos) << left["grouped"];
  EXPECT_NE(left["viewed"].find("view"), std::string::npos) << left["viewed"];
  EXPECT_NE(left["twice"].find("otherwise"), std::string::npos) << left["twice"];
  EXPECT_NE(left["turned"].find("first axis"), std::string::npos) << left["turned"];
}

// Rows are the windows, whether they are read from the image or lie one behind the other.
TEST(ConvolutionSites, ReadsAreWindows) {
  std::mt19937 random(3);
  for (const ConvolutionCase& c : convolution_cases()) {
    const std::vector<float> x = some_numbers(random, c.n * c.h * c.w * c.channels(), 1);
    const HandedReads handed = hand_back_reads(convolution(c), {"w", "absent"});
    ASSERT_EQ(verify(handed.graph), "");
    ASSERT_EQ(handed.rows.size(), 1U);
    const ReadRows& rows = handed.rows.at("w").at(0);
    ASSERT_EQ(rows.count(), c.rows());
    std::map<std::string, Tensor> in = images_in(c, x);
    in["w"] = held_tensor({dims({c.o, c.kh, c.kw, c.channels()}), {}}, std::vector<float>(c.o * c.columns(), 0));
    ASSERT_EQ(handed.graph.result_names.back(), "w.read");
    const std::vector<double> read = eval(handed.graph, in).back().values;
    const std::vector<int64_t> steps = rows.column_steps();
    for (int64_t m = 0; m < c.rows(); ++m) {
      const std::vector<float> window = window_at(c, x, m);
      ASSERT_EQ(window.size(), steps.size());
      for (size_t k = 0; k < steps.size(); ++k)
        ASSERT_EQ(float(read.at(rows.first_of(m) + steps[k])), window[k]) << m << " " << k;
    }
  }
}

// One part in int8, whose channels are [first, first + count).
struct PlainWindows {
  QuantizedPart at;
  int64_t first = 0, count = 0;
  std::vector<float> codes, factors, negative_factors, gains, negative_gains, narrow, wide;
};

PlainWindows plain_windows(const ConvolutionCase& c, const QuantizedPart& at, const std::vector<float>& x,
                           const std::vector<float>& w, bool dual, std::mt19937& random) {
  PlainWindows out;
  out.at = at;
  out.first = at.column / c.places();
  out.count = at.columns / c.places();
  float most = 0, least = 0, most_weight = 0;
  std::vector<float> divisors(c.channels());
  for (int64_t k = 0; k < c.channels(); ++k) divisors[k] = at.divides ? 0.4F * float(1 + k % 3) : 1;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t k = int64_t(i) % c.channels();
    if (k < out.first || k >= out.first + out.count) continue;
    most = std::max(most, x[i] / divisors[k]);
    least = std::max(least, -x[i] / divisors[k]);
  }
  std::vector<float> own;
  for (int64_t o = 0; o < at.rows; ++o)
    for (int64_t p = 0; p < c.places(); ++p)
      for (int64_t k = out.first; k < out.first + out.count; ++k)
        own.push_back(w[((at.row + o) * c.places() + p) * c.channels() + k] * divisors[k]);
  for (const float v : own) most_weight = std::max(most_weight, std::abs(v));
  const float sw = most_weight / 127, above = (dual ? most : std::max(most, least)) / 127, below = least / 127;
  for (const float v : own) out.codes.push_back(std::rint(v / sw));
  for (int64_t k = out.first; k < out.first + out.count; ++k) {
    out.factors.push_back(1 / (above * divisors[k]));
    out.negative_factors.push_back(1 / (below * divisors[k]));
  }
  out.gains.assign(at.rows, above * sw);
  out.negative_gains.assign(at.rows, below * sw);
  out.narrow = some_numbers(random, at.rank * at.columns, 0.1);
  out.wide = some_numbers(random, at.rank * at.rows, 0.1);
  return out;
}

int64_t code_of(float v) {
  return int64_t(std::clamp(std::rint(v), -127.0F, 127.0F));
}

void add_plain_windows(const ConvolutionCase& c, const PlainWindows& p, const std::vector<float>& x, bool dual,
                       std::vector<float>& sum) {
  for (int64_t m = 0; m < c.rows(); ++m) {
    const std::vector<float> window = window_at(c, x, m);
    for (int64_t o = 0; o < p.at.rows; ++o) {
      int64_t above = 0, below = 0;
      std::vector<double> thin(p.at.rank, 0);
      for (int64_t k = 0; k < p.at.columns; ++k) {
        const int64_t place = k / p.count, channel = k % p.count;
        const float v = window[place * c.channels() + p.first + channel];
        const auto code = int64_t(p.codes[o * p.at.columns + k]);
        above += code * code_of((dual ? std::max(v, 0.0F) : v) * p.factors[channel]);
        below += code * code_of(std::min(v, 0.0F) * p.negative_factors[channel]);
        for (int64_t r = 0; r < p.at.rank; ++r) thin[r] += double{v} * p.narrow[r * p.at.columns + k];
      }
      float y = float(above) * p.gains[o];
      if (dual) y += float(below) * p.negative_gains[o];
      double beside = 0;
      for (int64_t r = 0; r < p.at.rank; ++r) beside += double{float(thin[r])} * p.wide[o * p.at.rank + r];
      if (p.at.rank > 0) y += float(beside);
      float& to = sum[m * c.o + p.at.row + o];
      to = p.at.column == 0 ? y : to + y;
    }
  }
}

void expect_plain_windows(const ConvolutionCase& c, bool has_segments, bool dual, bool divides, int64_t rank,
                          uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<float> x = some_numbers(random, c.n * c.h * c.w * c.channels(), 2),
                           w = some_numbers(random, c.o * c.columns(), 0.2);
  QuantizedProduct product{"w", window_format("int8"), window_format("int8"), dual, {}, c.places()};
  const int64_t border = c.a * c.places();
  if (has_segments)
    product.parts = {{0, c.o, 0, border, divides, rank}, {0, c.o, border, c.columns() - border, divides, rank}};
  else
    product.parts = {{0, 1, 0, c.columns(), divides, rank}, {1, c.o - 1, 0, c.columns(), divides, rank}};
  std::map<std::string, Tensor> in = images_in(c, x);
  in["w"] = held_tensor({dims({c.o, c.kh, c.kw, c.channels()}), {}},
                        std::vector<float>(c.o * c.columns(), 1e9F));  // nobody reads it
  std::vector<float> expected(c.rows() * c.o, 0);
  for (size_t k = 0; k < product.parts.size(); ++k) {
    const PlainWindows p = plain_windows(c, product.parts[k], x, w, dual, random);
    add_plain_windows(c, p, x, dual, expected);
    const std::map<PartInput, const std::vector<float>*> numbers = {
        {PartInput::factors, &p.factors}, {PartInput::negative_factors, &p.negative_factors},
        {PartInput::gains, &p.gains},     {PartInput::negative_gains, &p.negative_gains},
        {PartInput::narrow, &p.narrow},   {PartInput::wide, &p.wide}};
    for (const auto& [what, type] : part_inputs(product, k)) {
      Tensor& to = in[part_input("w", k, what)];
      if (what != PartInput::codes) {
        to = held_tensor(type, *numbers.at(what));
        continue;
      }
      to.type = type;
      to.blob = encode(*product.weights, p.codes, p.at.rows, p.at.columns, std::array{SuppliedField{0, {1}}});
    }
  }
  const Graph g = quantize_products(convolution(c), {product});
  ASSERT_EQ(verify(g), "");
  const std::vector<double> got = eval(g, in)[0].values;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (rank == 0)
      ASSERT_EQ(float(got[i]), expected[i]) << i << " segments " << has_segments << " dual " << dual;
    else
      ASSERT_NEAR(got[i], expected[i], 1e-5 * (1 + std::abs(expected[i])));
  }
}

TEST(QuantizedConvolutions, AreTheFormulasBitForBit) {
  uint32_t seed = 1;
  for (const ConvolutionCase& c : convolution_cases())
    for (const bool has_segments : {false, true})
      for (const bool dual : {false, true})
        for (const bool divides : {false, true})
          for (const int64_t rank : {0, 2}) expect_plain_windows(c, has_segments, dual, divides, rank, seed++);
}

// Codes of int8 are made of the image, once; those of rows that are windows are made of windows.
TEST(QuantizedConvolutions, WhatIsEncoded) {
  const ConvolutionCase c;
  const auto encoded_shapes = [&](const char* format, bool dual) {
    const FormatRef f = window_format(format);
    const Graph g = quantize_products(convolution(c), {{"w", f, f, dual, {{0, c.o, 0, c.columns()}}, c.places()}});
    EXPECT_EQ(verify(g), "");
    std::vector<Shape> out;
    for (const Node& n : g.nodes)
      if (n.op == Op::cast_ && n.type.element.format) out.push_back(n.type.shape);
    return out;
  };
  EXPECT_EQ(encoded_shapes("int8", false), std::vector<Shape>{dims({c.n, c.h + 2, c.w + 2, 5})});
  EXPECT_EQ(encoded_shapes("int8", true), std::vector<Shape>{dims({2, c.n, c.h + 2, c.w + 2, 5})});
  EXPECT_EQ(encoded_shapes("int8_row", false), std::vector<Shape>{dims({c.n, c.high(), c.wide(), c.columns()})});
  EXPECT_EQ(encoded_shapes("int8_row", true), std::vector<Shape>{dims({2, c.n, c.high(), c.wide(), c.columns()})});
}

TEST(QuantizedConvolutions, RowsAreWindows) {
  const FormatRef f = window_format("int8_row");
  std::mt19937 random(5);
  for (const ConvolutionCase& c : convolution_cases()) {
    const std::vector<float> x = some_numbers(random, c.n * c.h * c.w * c.channels(), 2),
                             w = some_numbers(random, c.o * c.columns(), 0.2);
    const QuantizedProduct product{"w", f, f, false, {{0, c.o, 0, c.columns()}}, c.places()};
    std::map<std::string, Tensor> in = images_in(c, x);
    in["w"] = held_tensor({dims({c.o, c.kh, c.kw, c.channels()}), {}}, w);
    Tensor& codes = in[part_input("w", 0, PartInput::codes)];
    codes.type = part_inputs(product, 0).at(PartInput::codes);
    codes.blob = encode(*f, w, c.o, c.columns());
    const std::vector<float> held = decode(*f, codes.blob, c.o, c.columns());
    const std::vector<double> got = eval(quantize_products(convolution(c), {product}), in)[0].values;
    for (int64_t m = 0; m < c.rows(); ++m) {
      const std::vector<float> read = decode(*f, encode(*f, window_at(c, x, m), 1, c.columns()), 1, c.columns());
      for (int64_t o = 0; o < c.o; ++o) {
        double y = 0;
        for (int64_t k = 0; k < c.columns(); ++k) y += double{held[o * c.columns() + k]} * read[k];
        ASSERT_NEAR(got[m * c.o + o], y, 1e-5);
      }
    }
  }
}

// Channels first in the image, a window along one axis, the weight on the left.
TEST(QuantizedConvolutions, OtherOrdersOfAxes) {
  Graph g;
  Builder build(g);
  const ValueId x = build.input("x", Role::data, {dims({2, 3, 8}), {}});  // channels, then time
  const ValueId w = build.input("w", Role::parameter, {dims({4, 5, 3}), {}});
  const ValueId windows =
      build.windows(x, {0, 0, 0}, {1, 0, 0, 0, /**/ 0, 1, 0, 0, /**/ 0, 0, 1, 1}, dims({2, 3, 4, 5}));
  g.results = {build.contract(w, windows, "okc", "nctk", "ont")};
  g.result_names = {"y"};
  ASSERT_EQ(verify(g), "");
  const std::vector<ProductSite> sites = product_sites(g);
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].window, (std::vector<int64_t>{5}));
  std::mt19937 random(9);
  const std::vector<float> image = some_numbers(random, 2 * 3 * 8, 1), weight = some_numbers(random, 4 * 15, 1);
  for (const char* name : {"int8", "int8_row"}) {
    const FormatRef f = window_format(name);
    QuantizedProduct product{"w", f, f, false, {{0, 4, 0, 15}}, 5};
    std::map<std::string, Tensor> in = {{"x", held_tensor({dims({2, 3, 8}), {}}, image)},
                                        {"w", held_tensor({dims({4, 5, 3}), {}}, weight)}};
    const std::vector<double> exact = eval(g, in)[0].values;
    for (const auto& [what, type] : part_inputs(product, 0)) {
      Tensor& to = in[part_input("w", 0, what)];
      const bool is_codes = what == PartInput::codes;
      // Scales of 1/32 for both: numbers reach to 4.
      to = held_tensor(
          type, std::vector<float>(elements(type.shape).number(), what == PartInput::gains ? 1.0F / 1024 : 32.0F));
      if (!is_codes) continue;
      std::vector<float> scaled = weight;
      if (name == std::string("int8"))
        for (float& v : scaled) v *= 32;
      to.values.clear();
      to.blob = name == std::string("int8") ? encode(*f, scaled, 4, 15, std::array{SuppliedField{0, {1}}})
                                            : encode(*f, scaled, 4, 15);
    }
    const Graph few = quantize_products(g, {product});
    ASSERT_EQ(verify(few), "");
    const std::vector<double> got = eval(few, in)[0].values;
    double off = 0, all = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      off += (got[i] - exact[i]) * (got[i] - exact[i]);
      all += exact[i] * exact[i];
    }
    EXPECT_LT(std::sqrt(off / all), 0.02) << name;
    EXPECT_GT(std::sqrt(off / all), 1e-5) << name;
  }
}

TEST(QuantizedConvolutions, WhatCannotBe) {
  const ConvolutionCase c;
  const FormatRef f = window_format("int8");
  const auto refused = [&](std::vector<QuantizedPart> parts, int64_t places) {
    try {
      (void)quantize_products(convolution(c), {{"w", f, f, false, std::move(parts), places}});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(refused({{0, 4, 0, 30}}, 6), "taken");
  EXPECT_NE(refused({{0, 4, 0, 30}}, 1).find("6 places"), std::string::npos);
  EXPECT_NE(refused({{0, 4, 0, 15}, {0, 4, 15, 15}}, 6).find("do not cover"), std::string::npos);
  EXPECT_NE(refused({{0, 4, 0, 24}}, 6).find("do not cover"), std::string::npos);
}

}  // namespace
}  // namespace lumen::graph
