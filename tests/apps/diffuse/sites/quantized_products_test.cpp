// Needs: none. Products of codes against the method's formulas in plain loops: segments of ragged widths, both signs
// with scales of their own, divided columns, a way of low rank beside; bit for bit.
#include "apps/diffuse/sites/quantized_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "apps/diffuse/sites/read_values.h"
#include "base/error.h"
#include "base/place.h"
#include "graph/ir/eval.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "lang/parser.h"
#include "number/codec/codec.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

constexpr int64_t kSiteRows = 5, kSiteOut = 12, kSiteIn = 16;

FormatRef site_format(const std::string& name) {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all.get(name);
}

Graph one_product() {
  return *parse(
              std::make_shared<Source>(Source{"test",
                                              "graph main(%x: data tensor<5x16xf32>, %w: parameter tensor<12x16xf32>, "
                                              "%b: parameter tensor<12xf32>) {\n"
                                              "  %3 = contract %x, %w (mk,nk->mn) : tensor<5x12xf32>\n"
                                              "  %4 = map %3, %b (%0: f32, %1: f32) { %2 = add f32 %0, %1 } -> %2 : "
                                              "tensor<5x12xf32>\n  return y = %4\n}\n"}),
              nullptr)
              .back();
}

std::vector<float> drawn_numbers(std::mt19937& random, size_t count, double spread) {
  std::normal_distribution<double> normal(0, spread);
  std::vector<float> out(count);
  for (float& v : out) v = random() % 5 == 0 ? 0 : float(normal(random));
  return out;
}

// All that a part holds, as the method has it: codes are whole numbers.
struct PlainPart {
  QuantizedPart at;
  std::vector<float> codes, factors, negative_factors, gains, negative_gains, narrow, wide;
};

float scale_for(float most) {
  return most > 0 ? most / 127 : 1;
}

// Scales of the part's weights and of what it reads, by rounded f32 arithmetic. `groups`: of rows with one scale.
PlainPart plain_part(const QuantizedPart& at, const std::vector<float>& x, const std::vector<float>& w,
                     const std::vector<float>& divisors, bool dual, std::mt19937& random) {
  PlainPart out{at, {}, {}, {}, {}, {}, {}, {}};
  const auto divisor = [&](int64_t k) { return at.divides ? divisors[at.column + k] : 1.0F; };
  float most = 0, least = 0, most_weight = 0;
  for (int64_t m = 0; m < kSiteRows; ++m)
    for (int64_t k = 0; k < at.columns; ++k) {
      const float v = x[m * kSiteIn + at.column + k] / divisor(k);
      most = std::max(most, v);
      least = std::max(least, -v);
    }
  for (int64_t n = 0; n < at.rows; ++n)
    for (int64_t k = 0; k < at.columns; ++k)
      most_weight = std::max(most_weight, std::abs(w[(at.row + n) * kSiteIn + at.column + k] * divisor(k)));
  const float sw = scale_for(most_weight), above = scale_for(dual ? most : std::max(most, least)),
              below = scale_for(least);
  for (int64_t n = 0; n < at.rows; ++n)
    for (int64_t k = 0; k < at.columns; ++k)
      out.codes.push_back(std::rint(w[(at.row + n) * kSiteIn + at.column + k] * divisor(k) / sw));
  for (int64_t k = 0; k < at.columns; ++k) {
    out.factors.push_back(1 / (above * divisor(k)));
    out.negative_factors.push_back(1 / (below * divisor(k)));
  }
  out.gains.assign(at.rows, above * sw);
  out.negative_gains.assign(at.rows, below * sw);
  out.narrow = drawn_numbers(random, at.rank * at.columns, 0.1);
  out.wide = drawn_numbers(random, at.rank * at.rows, 0.1);
  return out;
}

float clamped_code(float v) {
  return std::clamp(std::rint(v), -127.0F, 127.0F);
}

// y of the part, added to `sum` where there is one: codes are summed as whole numbers.
void add_plain(const PlainPart& p, const std::vector<float>& x, bool dual, std::vector<float>& sum) {
  for (int64_t m = 0; m < kSiteRows; ++m)
    for (int64_t n = 0; n < p.at.rows; ++n) {
      int64_t above = 0, below = 0;
      double beside = 0;
      for (int64_t k = 0; k < p.at.columns; ++k) {
        const float v = x[m * kSiteIn + p.at.column + k];
        const auto c = int64_t(p.codes[n * p.at.columns + k]);
        above += c * int64_t(clamped_code((dual ? std::max(v, 0.0F) : v) * p.factors[k]));
        below += c * int64_t(clamped_code(std::min(v, 0.0F) * p.negative_factors[k]));
      }
      float y = float(above) * p.gains[n];
      if (dual) y += float(below) * p.negative_gains[n];
      for (int64_t r = 0; r < p.at.rank; ++r) {
        double t = 0;
        for (int64_t k = 0; k < p.at.columns; ++k)
          t += double{x[m * kSiteIn + p.at.column + k]} * p.narrow[r * p.at.columns + k];
        beside += double{float(t)} * p.wide[n * p.at.rank + r];
      }
      if (p.at.rank > 0) y += float(beside);
      float& to = sum[m * kSiteOut + p.at.row + n];
      to = p.at.column == 0 ? y : to + y;
    }
}

Tensor tensor_of(const Type& type, std::span<const float> values) {
  Tensor out;
  out.type = type;
  out.values.assign(values.begin(), values.end());
  return out;
}

struct Arrangement {
  std::vector<int64_t> rows, columns;
  bool divides = false;
  int64_t rank = 0;
};

void expect_equal_bits(const Arrangement& how, bool dual, const std::vector<float>& x, const std::vector<float>& w,
                       uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<float> bias = drawn_numbers(random, kSiteOut, 1);
  std::vector<float> divisors(kSiteIn);
  for (float& d : divisors) d = float(1 << random() % 3) * 0.37F;
  QuantizedProduct product{"w", site_format("int8"), site_format("int8"), dual, {}};
  int64_t row = 0;
  for (const int64_t rows : how.rows) {
    int64_t column = 0;
    for (const int64_t columns : how.columns) {
      product.parts.push_back({row, rows, column, columns, how.divides, how.rank});
      column += columns;
    }
    row += rows;
  }
  std::map<std::string, Tensor> in;
  in["x"] = tensor_of({{Dim(kSiteRows), Dim(kSiteIn)}, {}}, x);
  in["w"] =
      tensor_of({{Dim(kSiteOut), Dim(kSiteIn)}, {}}, std::vector<float>(kSiteOut * kSiteIn, 1e9F));  // nobody reads it
  in["b"] = tensor_of({{Dim(kSiteOut)}, {}}, bias);
  std::vector<float> expected(kSiteRows * kSiteOut, 0);
  for (size_t k = 0; k < product.parts.size(); ++k) {
    const PlainPart p = plain_part(product.parts[k], x, w, divisors, dual, random);
    add_plain(p, x, dual, expected);
    const std::map<PartInput, const std::vector<float>*> numbers = {
        {PartInput::factors, &p.factors}, {PartInput::negative_factors, &p.negative_factors},
        {PartInput::gains, &p.gains},     {PartInput::negative_gains, &p.negative_gains},
        {PartInput::narrow, &p.narrow},   {PartInput::wide, &p.wide}};
    for (const auto& [what, type] : part_inputs(product, k)) {
      Tensor& to = in[part_input("w", k, what)];
      if (what != PartInput::codes) {
        to = tensor_of(type, *numbers.at(what));
        continue;
      }
      to.type = type;
      to.blob = encode(*product.weights, p.codes, p.at.rows, p.at.columns, std::array{SuppliedField{0, {1}}});
    }
  }
  for (int64_t i = 0; i < kSiteRows * kSiteOut; ++i) expected[i] += bias[i % kSiteOut];
  const Graph g = quantize_products(one_product(), {product});
  ASSERT_EQ(verify(g), "");
  const std::vector<double> got = eval(g, in)[0].values;
  for (int64_t i = 0; i < kSiteRows * kSiteOut; ++i)
    ASSERT_EQ(float(got[i]), expected[i])
        << i << " seed " << seed << " parts " << product.parts.size() << " dual " << dual;
}

TEST(QuantizedProducts, AreTheFormulasBitForBit) {
  const std::vector<Arrangement> arrangements = {
      {{12}, {16}},
      {{12}, {16}, true},
      {{2, 2, 2, 2, 2, 2}, {16}, true},
      {{1, 7, 4}, {16}},
      {{12}, {4, 4, 4, 4}},
      {{12}, {1, 5, 10}, false},
      {{12}, {3, 13}, true},
      {{5, 7}, {6, 10}, true},
      {{12}, {16}, true, 2},
      {{4, 8}, {16}, true, 3},
  };
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed * 77);
    std::vector<float> x = drawn_numbers(random, kSiteRows * kSiteIn, 2),
                       w = drawn_numbers(random, kSiteOut * kSiteIn, 0.2);
    if (seed == 2)  // as SiLU leaves them
      for (float& v : x) v = v / (1 + std::exp(-v));
    if (seed == 3)  // whole segments of zeros
      for (int64_t i = 0; i < kSiteOut * kSiteIn; ++i)
        if (i / kSiteIn < 5 || i % kSiteIn < 4) w[i] = 0;
    if (seed == 4)
      for (int64_t i = 0; i < kSiteRows * kSiteIn; ++i)
        if (i % kSiteIn < 6) x[i] = 0;
    if (seed == 5)
      for (float& v : x) v = std::max(v, 0.0F);
    for (const Arrangement& how : arrangements)
      for (const bool dual : {false, true}) expect_equal_bits(how, dual, x, w, seed);
  }
}

// Both signs are one product, which reads codes once; the bias is added once behind it.
TEST(QuantizedProducts, BothSignsAreOneProduct) {
  const FormatRef f = site_format("int8");
  const Graph g = quantize_products(one_product(), {{"w", f, f, true, {{0, 12, 0, 16, false, 0}}}});
  int products = 0, encodings = 0;
  for (const Node& n : g.nodes) {
    products += n.op == Op::contract_;
    encodings += n.op == Op::cast_ && n.type.element.format;
  }
  EXPECT_EQ(products, 1) << print(g);
  EXPECT_EQ(encodings, 1);
  EXPECT_NE(print(g).find("tensor<2x5x16xint8>"), std::string::npos);
  EXPECT_NE(print(g).find("(amk,nk->amn)"), std::string::npos) << print(g);
}

// Formats without a number for the whole tensor are fitted while the graph runs, each sign by itself.
TEST(QuantizedProducts, RowsAreFitted) {
  const FormatRef f = site_format("int8_row");
  std::mt19937 random(5);
  const std::vector<float> x = drawn_numbers(random, kSiteRows * kSiteIn, 2),
                           w = drawn_numbers(random, kSiteOut * kSiteIn, 0.2);
  const QuantizedProduct product{"w", f, f, true, {{0, 4, 0, 16, false, 0}, {4, 8, 0, 16, false, 0}}};
  std::map<std::string, Tensor> in;
  in["x"] = tensor_of({{Dim(kSiteRows), Dim(kSiteIn)}, {}}, x);
  in["w"] = tensor_of({{Dim(kSiteOut), Dim(kSiteIn)}, {}}, w);
  in["b"] = tensor_of({{Dim(kSiteOut)}, {}}, std::vector<float>(kSiteOut, 0));
  std::vector<float> held;
  for (size_t k = 0; k < 2; ++k) {
    ASSERT_EQ(part_inputs(product, k).size(), 1U) << "codes alone";
    Tensor& codes = in[part_input("w", k, PartInput::codes)];
    const QuantizedPart& at = product.parts[k];
    codes.type = part_inputs(product, k).at(PartInput::codes);
    codes.blob = encode(*f, std::span(w).subspan(at.row * kSiteIn, at.rows * kSiteIn), at.rows, kSiteIn);
    const std::vector<float> some = decode(*f, codes.blob, at.rows, kSiteIn);
    held.insert(held.end(), some.begin(), some.end());
  }
  std::vector<float> above = x, below = x;
  for (float& v : above) v = std::max(v, 0.0F);
  for (float& v : below) v = std::min(v, 0.0F);
  above = decode(*f, encode(*f, above, kSiteRows, kSiteIn), kSiteRows, kSiteIn);
  below = decode(*f, encode(*f, below, kSiteRows, kSiteIn), kSiteRows, kSiteIn);
  const Graph g = quantize_products(one_product(), {product});
  ASSERT_EQ(verify(g), "");
  const std::vector<double> got = eval(g, in)[0].values;
  for (int64_t m = 0; m < kSiteRows; ++m)
    for (int64_t n = 0; n < kSiteOut; ++n) {
      double y = 0;
      for (int64_t k = 0; k < kSiteIn; ++k)
        y += double{held[n * kSiteIn + k]} * (double{above[m * kSiteIn + k]} + below[m * kSiteIn + k]);
      EXPECT_NEAR(got[m * kSiteOut + n], y, 1e-5);
    }
}

TEST(QuantizedProducts, WhatCannotBe) {
  const FormatRef f = site_format("int8"), pairs = site_format("int4_row");
  const auto refused = [&](const QuantizedProduct& p) {
    try {
      (void)quantize_products(one_product(), {p});
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_NE(refused({"w", f, f, false, {}}).find("do not cover"), std::string::npos);
  EXPECT_NE(refused({"w", f, f, false, {{0, 12, 0, 15}}}).find("do not cover"), std::string::npos);
  EXPECT_NE(refused({"w", f, f, false, {{0, 5, 0, 16}, {5, 8, 0, 16}}}).find("do not cover"), std::string::npos);
  EXPECT_NE(refused({"w", f, f, false, {{0, 5, 0, 16}, {6, 6, 0, 16}}}).find("do not cover"), std::string::npos);
  EXPECT_EQ(refused({"w", pairs, f, false, {{0, 12, 0, 3}, {0, 12, 3, 13}}}), "taken") << "zeros stand behind";
  EXPECT_NE(refused({"b", f, f, false, {{0, 12, 0, 1}}}).find("no matrix"), std::string::npos);
  EXPECT_EQ(refused({"absent", f, f, false, {}}), "taken");
}

TEST(QuantizedProducts, WhatTheyReadIsHandedBack) {
  const HandedReads handed = hand_back_reads(one_product(), {"w", "absent"});
  const Graph& g = handed.graph;
  EXPECT_EQ(handed.rows.at("w").at(0).count(), 5);
  ASSERT_EQ(verify(g), "");
  ASSERT_EQ(g.result_names, (std::vector<std::string>{"y", "w.read"}));
  EXPECT_EQ(g[g.results[1]].type, (Type{{Dim(5), Dim(16)}, {}}));
}

// Signal over noise of elementwise encodings, as simulated for the method: 8 bits of SiLU of a standard normal
// have 35.0 dB, with both signs apart 38.2 (the negative ones 25.7 and 50.6); negative GELU, sigma 2, 15.1 and 49.0; of
// 4 bits negative SiLU 0 and 26.8.
TEST(QuantizedProducts, SignalOverNoiseOfBothSigns) {
  // Four bits with all sixteen codes, as the paper has them: negative numbers reach to -8.
  FormatLibrary own;
  own.add(lang::parse_file(std::make_shared<Source>(Source{"test.lum", R"(format sixteen_codes : block 2 {
    row s : f32
    q : i4[2]
    decode(i)  = s * q[i]
    fit row(x) { s = max((max(j) x[j]) / 7, (min(j) x[j]) / -8) }
    code(v)    = clamp(rint(v * recip(s)), -8, 7)
  })"})));
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  constexpr int64_t kCount = 1 << 17;
  const auto decibels = [&](const char* name, bool silu, double sigma, bool dual, bool negative) {
    const FormatRef f = own.find(name) ? own.find(name) : site_format(name);
    std::vector<float> x(kCount), above(kCount), below(kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      // The largest of 2^20 draws, as there were in the simulation, is 4.9 deviations off.
      const double v = sigma * (i < 2 ? (i == 0 ? 4.9 : -4.9) : normal(random));
      x[i] = float(silu ? v / (1 + std::exp(-v)) : 0.5 * v * std::erfc(-v * std::sqrt(0.5)));
      above[i] = std::max(x[i], 0.0F);
      below[i] = std::min(x[i], 0.0F);
    }
    const auto held = [&](const std::vector<float>& v) { return decode(*f, encode(*f, v, 1, kCount), 1, kCount); };
    const std::vector<float> q = held(x), p = held(above), m = held(below);
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      if (negative && !(x[i] < 0)) continue;
      const double y = dual ? double{p[i]} + m[i] : double{q[i]};
      signal += double{x[i]} * x[i];
      noise += (x[i] - y) * (x[i] - y);
    }
    return 10 * std::log10(signal / noise);
  };
  EXPECT_NEAR(decibels("int8", true, 1, false, false), 35.0, 1);
  EXPECT_NEAR(decibels("int8", true, 1, true, false), 38.2, 1);
  EXPECT_NEAR(decibels("int8", true, 1, false, true), 25.7, 1);
  EXPECT_NEAR(decibels("int8", true, 1, true, true), 50.6, 1);
  EXPECT_NEAR(decibels("int8", false, 2, false, true), 15.1, 1);
  EXPECT_NEAR(decibels("int8", false, 2, true, true), 49.0, 1);
  EXPECT_NEAR(decibels("sixteen_codes", true, 1, false, true), 0.0, 1);
  EXPECT_NEAR(decibels("sixteen_codes", true, 1, true, true), 26.8, 1);
}

}  // namespace
}  // namespace lumen::graph
