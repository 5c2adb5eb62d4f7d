// Needs: none. Scales of operands that are learned: their gradients against the oracle's (number/gradient) for every
// level of scale, formats of one's own among them; what backward products read; what is refused, and why.
#include "graph/pass/learned_scales.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pass/operand_formats.h"
#include "lang/parser.h"
#include "number/gradient/gradient.h"
#include "number/gradient/stochastic.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

using Numbers = std::vector<float>;
constexpr int64_t kTokens = 64, kIn = 96, kOut = 160;

const FormatLibrary& library() {
  static const FormatLibrary all = [] {
    FormatLibrary out = FormatLibrary::builtin();
    out.add(lang::parse_file(std::make_shared<Source>(
        Source{"own.lum",
               "format own : block 8, doc \"a scale for 8\" { s : f16; q : i6[8]; decode(i) = s * q[i]; "
               "fit(x) { s = (max(j) abs(x[j])) / 31 } \n code(v) = clamp(rint(v * recip(s)), -31, 31); }"})));
    return out;
  }();
  return all;
}

// loss = sum(c * (tanh(x) w)).
Graph layer() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{kTokens, kIn}, {}});
  const ValueId w = b.input("w", Role::parameter, {{kOut, kIn}, {}});
  const ValueId c = b.input("c", Role::data, {{kTokens, kOut}, {}});
  const ValueId y = b.contract(b.unary(ScalarOp::tanh_, x), w, "mk", "nk", "mn");
  g.results = {b.reshape(b.reduce(b.mul(b.unary(ScalarOp::neg_, y), c), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  return g;
}

ProductType learned(const char* activation, const char* weight) {
  ProductType type;
  for (OperandFormats& f : type.formats)
    f = {activation ? library().get(activation) : nullptr, weight ? library().get(weight) : nullptr, nullptr};
  if (activation) type.sources.activation = FieldSource::learned;
  if (weight) type.sources.weight = FieldSource::learned;
  return type;
}

Numbers floats(const Tensor& t) {
  return {t.values.begin(), t.values.end()};
}

// The values of a field as a format fits them to a matrix, by record.
std::vector<double> fitted(const FormatRef& f, int field, const Numbers& a, int64_t rows, int64_t columns) {
  const FormatRef numbers = as_field(*f, {field, RoutineExpr{RoutineExpr::Kind::constant, Scalar::i32}});
  const Numbers each = decode(*numbers, encode(*numbers, a, rows, columns), rows, columns);
  int64_t high = 1, wide = 1;
  switch (f->fields[field].level) {
    case Level::block:
      wide = f->block;
      break;
    case Level::row:
      wide = columns;
      break;
    case Level::tensor:
      high = rows, wide = columns;
      break;
    case Level::tile:
      high = f->tile_rows, wide = f->tile_columns;
      break;
  }
  std::vector<double> out;
  for (int64_t r = 0; r < rows; r += high)
    for (int64_t c = 0; c < columns; c += wide) out.push_back(each[r * columns + c]);
  return out;
}

void set(std::map<std::string, Tensor>& inputs, const LearnedScale& s, std::vector<double> values) {
  inputs[s.name] = {{s.shape, {}}, std::move(values), {}};
}

constexpr double kShare = 0.7;  // of what fits: some numbers are beyond the last code

TEST(LearnedScales, GradientIsThatOfTheStepSize) {
  for (const char* name : {"int8", "fp8_tensor", "int8_row", "int4_row", "fp8_row", "fp8_row_p2", "fp8_tile",
                           "fp8_1x128", "fp8_128x128_p2", "int8_1x128", "int8_block", "q8_0", "mxfp8_e4m3_up", "mxint8",
                           "fp8_two_level", "nvfp4_divided", "own"}) {
    const FormatRef f = library().get(name);
    std::vector<LearnedScale> scales;
    Graph g = learn_scales(layer(), learned(nullptr, name), false, &scales);
    ASSERT_EQ(verify(g), "") << print(g);
    ASSERT_EQ(std::ssize(scales), std::ssize(f->fields) - 1) << name;
    std::vector<ValueId> wanted = {g.find_input("w")};
    for (const LearnedScale& s : scales) {
      EXPECT_EQ(s.weight, "w");
      EXPECT_EQ(s.rows, kOut);
      EXPECT_EQ(s.columns, kIn);
      wanted.push_back(g.find_input(s.name));
    }
    auto inputs = random_inputs(layer(), 7, 1);
    const Numbers w = floats(inputs.at("w"));
    std::vector<SuppliedField> supplied;
    for (const LearnedScale& s : scales) {
      std::vector<double> values = fitted(f, s.field, w, kOut, kIn);
      // Of two levels the upper one alone is too small, so that the product is.
      if (&s == scales.data())
        for (double& v : values) v *= kShare;
      ASSERT_EQ(std::ssize(values), elements(s.shape).number()) << name << " " << s.name;
      supplied.push_back({s.field, values});
      set(inputs, s, std::move(values));
    }
    for (const ValueId d : differentiate(g, g.results[0], wanted)) g.results.push_back(d);
    g.result_names.assign(g.results.size(), "");
    const auto got = eval(g, inputs);
    // d loss / d (what w becomes) = - c^T tanh(x)
    const Numbers x = floats(inputs.at("x")), c = floats(inputs.at("c"));
    Numbers dw(kOut * kIn);
    for (int64_t n = 0; n < kOut; ++n)
      for (int64_t k = 0; k < kIn; ++k) {
        double sum = 0;
        for (int64_t m = 0; m < kTokens; ++m) sum -= c[m * kOut + n] * std::tanh(x[m * kIn + k]);
        dw[n * kIn + k] = static_cast<float>(sum);
      }
    const std::vector<uint8_t> blob = encode(*f, w, kOut, kIn, supplied);
    // Through what lies inside, and nowhere else.
    const Numbers mask = straight_through_mask(*f, w, blob, kOut, kIn);
    int64_t clipped = 0, other = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      clipped += mask[i] == 0;
      other += std::abs(got[1].values[i] - mask[i] * dw[i]) > 1e-4 * std::abs(dw[i]) + 1e-5;
    }
    // The field that comes first there is one that numbers are divided by.
    EXPECT_EQ(clipped > 0, name != std::string("nvfp4_divided")) << name;
    EXPECT_LE(other, 0.02 * static_cast<double>(w.size())) << name << ": half a step beyond the last code is either";
    for (size_t k = 0; k < scales.size(); ++k) {
      std::vector<double> want = field_gradient(*f, scales[k].field, w, blob, dw, kOut, kIn);
      const int64_t records = elements(scales[k].shape).number();
      ASSERT_EQ(std::ssize(want), records) << name;
      const double slope = step_slope(*f, kOut * kIn / records);
      double most = 0;
      for (double& v : want) most = std::max(most, std::abs(v *= slope));
      EXPECT_GT(most, 0);
      for (int64_t i = 0; i < records; ++i)
        ASSERT_NEAR(got[2 + k].values[i], want[i], 2e-4 * most) << name << " " << scales[k].name << " " << i;
    }
  }
}

// By hand: codes, what rounding leaves over, and the last code times what flows.
TEST(LearnedScales, GradientOfAnActivationByHand) {
  std::vector<LearnedScale> scales;
  Graph g = learn_scales(layer(), learned("int8", nullptr), false, &scales);
  ASSERT_EQ(scales.size(), 1U);
  EXPECT_EQ(scales[0].name, "w.activation_scale");
  EXPECT_EQ(scales[0].weight, "");
  EXPECT_TRUE(scales[0].shape.empty());
  auto inputs = random_inputs(layer(), 9, 1);
  const double s = 0.6 / 127;
  set(inputs, scales[0], {s});
  for (const ValueId d : differentiate(g, g.results[0], {g.find_input("x"), g.find_input(scales[0].name)}))
    g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  const auto got = eval(g, inputs);
  const Numbers x = floats(inputs.at("x")), w = floats(inputs.at("w")), c = floats(inputs.at("c"));
  double ds = 0, size = 0;
  for (int64_t m = 0; m < kTokens; ++m)
    for (int64_t k = 0; k < kIn; ++k) {
      double flows = 0;
      for (int64_t n = 0; n < kOut; ++n) flows -= double{c[m * kOut + n]} * w[n * kIn + k];
      const double u = std::tanh(x[m * kIn + k]) / s, q = std::min(127.0, std::max(-127.0, std::rint(u)));
      const bool is_beyond = std::abs(std::rint(u)) > 127;
      ds += flows * (is_beyond ? q : q - u);
      size += std::abs(flows);
      const double dx = is_beyond ? 0 : flows * (1 - std::pow(std::tanh(x[m * kIn + k]), 2));
      ASSERT_NEAR(got[1].values[m * kIn + k], dx, 1e-4 * std::abs(flows) + 1e-5) << m << " " << k;
    }
  const double slope = 1 / std::sqrt(double(kTokens * kIn) * 128);
  EXPECT_NEAR(step_slope(*library().get("int8"), kTokens * kIn), slope, 1e-12);
  EXPECT_NEAR(got[2].values[0], ds * slope, 1e-4 * size * slope);
}

int encodings(const Graph& g, const std::string& format) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == Op::cast_ && node.type.element.format == library().get(format);
  return n;
}

// Two products read one activation: one scale; backward products read the forward one's codes, in any format's rows.
TEST(LearnedScales, OneEncodingServesAllProducts) {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{kTokens, kIn}, {}});
  const ValueId h = b.unary(ScalarOp::tanh_, x);
  ValueId sum = -1;
  for (const char* name : {"layers.0.wq", "layers.0.wk"}) {
    const ValueId y = b.contract(h, b.input(name, Role::parameter, {{kOut, kIn}, {}}), "mk", "nk", "mn");
    sum = sum < 0 ? y : b.mul(sum, y);
  }
  g.results = {b.reshape(b.reduce(b.unary(ScalarOp::sin_, sum), Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  const ProductType type = learned("int8", "int8_row");
  std::vector<LearnedScale> scales;
  g = learn_scales(g, type, false, &scales);
  std::vector<std::string> names;
  for (const LearnedScale& s : scales) names.push_back(s.name);
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.wq.activation_scale", "layers.0.wq.weight_scale",
                                             "layers.0.wk.weight_scale"}));
  for (const ValueId d :
       differentiate(g, g.results[0], {g.find_input("x"), g.find_input("layers.0.wq"), g.find_input("layers.0.wk")}))
    g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  Graph rounded = g;
  round_products(rounded, type);
  ASSERT_EQ(verify(rounded), "");
  EXPECT_EQ(encodings(rounded, "int8"), 1);
  EXPECT_EQ(encodings(rounded, "int8_row"), 2);
  // Nothing else is rounded, so that the step is what it was.
  auto inputs = random_inputs(g, 3, 1);
  for (const LearnedScale& s : scales)
    set(inputs, s, std::vector<double>(elements(s.shape).number(), static_cast<float>(1.5 / 127)));
  const auto want = eval(g, inputs), got = eval(rounded, inputs);
  for (size_t r = 0; r < want.size(); ++r) EXPECT_EQ(got[r].values, want[r].values) << r;
  // In another format an operand of the backward pass is encoded again.
  ProductType other = type;
  other.formats[1].weight = library().get("fp8_row");
  rounded = g;
  round_products(rounded, other);
  EXPECT_EQ(encodings(rounded, "fp8_row"), 2);
}

TEST(LearnedScales, OperandsOfAttention) {
  Graph g;
  Builder b(g);
  BlockSizes sizes;
  sizes.tokens = 16;
  g.results = {transformer(b, sizes)};
  g.result_names = {"loss"};
  ProductType type;
  type.attention = library().get("int8");
  std::vector<LearnedScale> scales;
  const Graph with = learn_scales(g, type, true, &scales);
  ASSERT_EQ(verify(with), "");
  std::vector<std::string> names;
  for (const LearnedScale& s : scales) names.push_back(s.name);
  EXPECT_EQ(names, (std::vector<std::string>{"wq.attention_scale", "wk.attention_scale", "wv.attention_scale"}));
  Graph step = with;
  for (const ValueId d : differentiate(
           step, step.results[0],
           {step.find_input("wq"), step.find_input("wq.attention_scale"), step.find_input("wv.attention_scale")}))
    step.results.push_back(d);
  step.result_names.assign(step.results.size(), "");
  Graph rounded = step;
  round_products(rounded, type);
  EXPECT_EQ(encodings(rounded, "int8"), 3) << "the backward pass reads the same codes";
  auto inputs = random_inputs(g, 3, 11);
  for (const LearnedScale& s : scales) set(inputs, s, {1.0 / 127});
  const auto want = eval(step, inputs), got = eval(rounded, inputs);
  for (size_t r = 0; r < want.size(); ++r) EXPECT_EQ(got[r].values, want[r].values) << r;
  EXPECT_NE(got[2].values[0], 0);
  type.attention = library().get("fp8_row");
  EXPECT_THROW((void)learn_scales(g, type, true, &scales), Error);
}

TEST(LearnedScales, BeginWithWhatFits) {
  const Graph g = fit_scales(layer(), learned("int8", "int8_row"), false);
  ASSERT_EQ(g.result_names, (std::vector<std::string>{"w.activation_scale"}));
  const auto inputs = random_inputs(layer(), 5, 1);
  double most = 0;
  for (const double v : inputs.at("x").values) most = std::max(most, std::abs(std::tanh(v)));
  EXPECT_NEAR(eval(g, inputs)[0].values[0], most / 127, 1e-6 * most);
}

TEST(LearnedScales, WhatCannotBeIsSaid) {
  const auto refused = [](const ProductType& type, const Graph& g) {
    std::vector<LearnedScale> scales;
    try {
      (void)learn_scales(g, type, false, &scales);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  const auto has = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_EQ(refused(learned("int8", "int8_row"), layer()), "taken");
  EXPECT_TRUE(has(refused(learned("fp8_row", nullptr), layer()), "belong to tokens"));
  EXPECT_TRUE(has(refused(learned("mxfp8_e4m3", nullptr), layer()), "belong to tokens"));
  EXPECT_TRUE(has(refused(learned("fp8_e4m3", nullptr), layer()), "has no scale that could be learned"));
  EXPECT_TRUE(has(refused(learned(nullptr, "bf16"), layer()), "has no scale that could be learned"));
  ProductType type = learned("int8", nullptr);
  type.random.activation = true;
  EXPECT_TRUE(has(refused(type, layer()), "rounded at random"));
  type = learned(nullptr, "int8");
  type.rotations[0] = 16;
  EXPECT_TRUE(has(refused(type, layer()), "rotated"));
  // A weight that the product sums over its rows.
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{kTokens, kIn}, {}}),
                w = b.input("w", Role::parameter, {{kIn, kOut}, {}});
  const ValueId y = b.unary(ScalarOp::sin_, b.contract(x, w, "mk", "kn", "mn"));
  g.results = {b.reshape(b.reduce(y, Reduction::sum, {0, 1}), {})};
  g.result_names = {"loss"};
  EXPECT_TRUE(has(refused(learned(nullptr, "int8_row"), g), "are its columns in this product"));
  EXPECT_EQ(refused(learned(nullptr, "int8"), g), "taken");
}

}  // namespace
}  // namespace lumen::graph
