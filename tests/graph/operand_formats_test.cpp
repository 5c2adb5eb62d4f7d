// Needs: none. Formats of operands: which rows scales are constant over in each of a layer's three products, against
// sums written out here; what is encoded once for several products; what is refused.
#include "graph/pass/operand_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "blocks.h"
#include "graph/grad/reverse.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "number/codec/codec.h"
#include "number/facts/facts.h"
#include "number/library/library.h"

namespace lumen::graph {
namespace {

using Matrix = std::vector<float>;
constexpr int64_t kTexts = 2, kLength = 32, kTokens = kTexts * kLength, kIn = 96, kOut = 160;

const FormatLibrary& library() {
  static const FormatLibrary all = FormatLibrary::builtin();
  return all;
}

// loss = sum(c * (x w)), so that the gradient of y = x w is c: the results are loss, dx, dw.
Graph layer() {
  Graph g;
  Builder b(g);
  const ValueId x = b.input("x", Role::data, {{kTexts, kLength, kIn}, {}});
  const ValueId w = b.input("w", Role::parameter, {{kOut, kIn}, {}});
  const ValueId c = b.input("c", Role::data, {{kTexts, kLength, kOut}, {}});
  const ValueId h = b.unary(ScalarOp::neg_, x);
  const ValueId y = b.mul(b.unary(ScalarOp::neg_, b.contract(h, w, "btk", "nk", "btn")), c);
  g.results = {b.reshape(b.reduce(y, Reduction::sum, {0, 1, 2}), {})};
  for (const ValueId d : differentiate(g, g.results[0], {x, w})) g.results.push_back(d);
  g.result_names.assign(g.results.size(), "");
  return g;
}

// [rows, columns] as [columns, rows].
Matrix transposed(const Matrix& a, int64_t rows, int64_t columns) {
  Matrix out(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out[j * rows + i] = a[i * columns + j];
  return out;
}

// What rows of so many columns are in a format.
Matrix held(const std::string& format, const Matrix& a, int64_t rows, int64_t columns) {
  const FormatRef f = library().get(format);
  return decode(*f, encode(*f, a, rows, columns), rows, columns);
}

// sum over k of a[i, k] b[j, k].
std::vector<double> product(const Matrix& a, const Matrix& b, int64_t k) {
  const int64_t m = std::ssize(a) / k, n = std::ssize(b) / k;
  std::vector<double> out(m * n, 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t s = 0; s < k; ++s) out[i * n + j] += double{a[i * k + s]} * b[j * k + s];
  return out;
}

Matrix floats(const Tensor& t) {
  return {t.values.begin(), t.values.end()};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double most = 0, far = 0;
  for (const double v : want) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < want.size(); ++i) far = std::max(far, std::abs(got[i] - want[i]));
  EXPECT_LT(far, 1e-5 * most) << what;
}

ProductType formats(const std::string& activation, const std::string& weight, const std::string& gradient) {
  ProductType type;
  type.formats.fill({library().get(activation), library().get(weight), library().get(gradient)});
  return type;
}

TEST(OperandFormats, LieAlongWhatProductsSum) {
  const std::vector<std::vector<std::string>> cases = {
      {"fp8_row", "int8_row", "fp8_e5m2_row"},
      {"fp8_1x128", "fp8_tile", "fp8_1x128"},
      {"fp8_two_level", "fp8_tensor", "fp8_e5m2_tensor"},
      {"mxfp8_e4m3_up", "mxfp4_up", "nvfp4_tensor"},
      {"int8_block", "q8_0", "fp8_1x128_p2"},
  };
  const Graph plain = layer();
  auto in = random_inputs(plain, 1, 11);
  for (const auto& names : cases) {
    Graph g = plain;
    round_products(g, formats(names[0], names[1], names[2]));
    ASSERT_EQ(verify(g), "") << print(g);
    const auto got = eval(g, in);
    Matrix x = floats(in.at("x"));
    for (float& v : x) v = -v;
    Matrix dy = floats(in.at("c"));
    for (float& v : dy) v = -v;
    const Matrix w = floats(in.at("w"));
    const std::string what = names[0] + " " + names[1] + " " + names[2];
    const auto y = product(held(names[0], x, kTokens, kIn), held(names[1], w, kOut, kIn), kIn);
    double loss = 0;
    for (size_t i = 0; i < y.size(); ++i) loss += y[i] * dy[i];
    EXPECT_NEAR(got[0].values[0], loss, 1e-4 * std::abs(loss) + 1e-2) << what;
    // The gradient of -x: the same sums with the other sign.
    auto dx = product(held(names[2], dy, kTokens, kOut), held(names[1], transposed(w, kOut, kIn), kIn, kOut), kOut);
    for (double& v : dx) v = -v;
    expect_near(got[1].values, dx, what + ": gradient of x");
    const auto dw = product(held(names[2], transposed(dy, kTokens, kOut), kOut, kTokens),
                            held(names[0], transposed(x, kTokens, kIn), kIn, kTokens), kTokens);
    expect_near(got[2].values, dw, what + ": gradient of w");
  }
}

int encodings(const Graph& g, const std::string& format) {
  int n = 0;
  for (const Node& node : g.nodes) n += node.op == Op::cast_ && node.type.element.format == library().get(format);
  return n;
}

TEST(OperandFormats, EncodeOnceWhatIsTheSameEitherWay) {
  Graph square = layer();
  round_products(square, formats("fp8_row", "fp8_tile", "fp8_row"));
  EXPECT_EQ(encodings(square, "fp8_tile"), 1) << "tiles of 128 x 128 serve the forward and the backward pass";
  Graph rows = layer();
  round_products(rows, formats("fp8_row", "int8_row", "fp8_e5m2_row"));
  EXPECT_EQ(encodings(rows, "int8_row"), 2) << "rows differ";
  EXPECT_EQ(encodings(rows, "fp8_row"), 2) << "x, along features and along tokens";
  EXPECT_EQ(encodings(rows, "fp8_e5m2_row"), 2);
}

// What the backward pass reads of an activation is encoded before the forward product: codes are kept.
TEST(OperandFormats, CodesAreWhatIsKept) {
  Graph g = layer();
  round_products(g, formats("fp8_row", "fp8_tile", "fp8_e5m2_row"));
  ValueId last = -1, product = -1;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    if (g[v].op == Op::cast_ && g[v].type.element.format == library().get("fp8_row")) last = v;
    if (g[v].op == Op::contract_ && product < 0) product = v;
  }
  EXPECT_LT(last, product) << print(g);
}

TEST(OperandFormats, SingleProductsMayStay) {
  Graph g = layer();
  ProductType type = formats("fp8_row", "fp8_tile", "fp8_row");
  type.formats[static_cast<size_t>(ProductKind::weight_gradient)] = {};
  type.scalar = Scalar::bf16;
  round_products(g, type);
  ASSERT_EQ(verify(g), "");
  int shorts = 0;
  for (const Node& node : g.nodes)
    shorts += node.op == Op::contract_ && g[node.operands[0]].type.element.scalar == Scalar::bf16 &&
              g[node.operands[1]].type.element.scalar == Scalar::bf16;
  EXPECT_EQ(shorts, 1) << print(g);
}

// Rounded at random: what is drawn is a function of the seed; on average over seeds the products are those of the
// numbers as they were, which they are not when rounded to the nearest.
TEST(OperandFormats, RandomRoundingsAreRightOnAverage) {
  for (const char* name : {"int8_row", "fp8_1x128", "mxfp4_up", "fp8_two_level"}) {
    const Graph plain = layer();
    auto in = random_inputs(plain, 1, 11);
    Graph g = plain;
    ProductType type = formats(name, name, name);
    type.random = {true, true, true};
    round_products(g, type);
    ASSERT_EQ(verify(g), "") << print(g);
    Graph nearest = plain;
    round_products(nearest, formats(name, name, name));
    const auto exact = eval(plain, in), rounded = eval(nearest, in);
    std::vector<double> mean(exact[2].values.size(), 0.0), first;
    constexpr int kDraws = 24;
    for (int k = 0; k < kDraws; ++k) {
      in[kProductSeed] = {{{}, {Scalar::u32, nullptr}}, {double(k)}, {}};
      const auto one = eval(g, in);
      if (k == 0) {
        first = one[2].values;
        EXPECT_EQ(eval(g, in)[2].values, first) << "the same seed, the same numbers";
      }
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += one[2].values[i] / kDraws;
    }
    double off = 0, off_once = 0;
    for (size_t i = 0; i < mean.size(); ++i) {
      off += std::pow(mean[i] - exact[2].values[i], 2);
      off_once += std::pow(first[i] - exact[2].values[i], 2);
    }
    EXPECT_NE(first, rounded[2].values) << name;
    EXPECT_LT(off, 2.5 / kDraws * off_once) << name << ": errors of draws do not add up";
  }
}

// A rotation of both operands leaves a product as it is, but for what is rounded after it.
TEST(OperandFormats, RotationsCancel) {
  const Graph plain = layer();
  auto in = random_inputs(plain, 1, 11);
  for (size_t i = 0; i < in["x"].values.size(); i += 37) in["x"].values[i] *= 100;
  const auto exact = eval(plain, in);
  const auto error = [&](const ProductType& type) {
    Graph g = plain;
    round_products(g, type);
    EXPECT_EQ(verify(g), "") << print(g);
    const auto got = eval(g, in);
    double off = 0, size = 0;
    for (size_t i = 0; i < got[2].values.size(); ++i) {
      off += std::pow(got[2].values[i] - exact[2].values[i], 2);
      size += std::pow(exact[2].values[i], 2);
    }
    return std::sqrt(off / size);
  };
  ProductType wide = formats("fp8_1x128", "fp8_1x128", "fp8_1x128");
  const double before = error(wide);
  wide.rotations = {32, 32, 32};
  const double after = error(wide);
  EXPECT_NE(before, after);
  EXPECT_LT(after, 0.06);
  ProductType one_side = wide;
  for (OperandFormats& f : one_side.formats) f.gradient = nullptr;
  EXPECT_LT(error(one_side), 0.06) << "an operand without a format is not rotated, and then the other is not either";
}

TEST(OperandFormats, TablesOfCodesAreNotRoundedAtRandom) {
  Graph g = layer();
  ProductType type = formats("fp8_row", "fp8_tile", "mxfp4");
  type.random.gradient = true;
  EXPECT_THROW(round_products(g, type), Error);
}

// Zeros behind rows that blocks do not divide change nothing of the scales.
TEST(OperandFormats, RowsThatBlocksDoNotDivide) {
  const Graph plain = layer();
  const auto in = random_inputs(plain, 1, 11);
  Graph g = plain;
  round_products(g, formats("mxfp8_e4m3_up", "q8_0", "q4_k"));
  ASSERT_EQ(verify(g), "") << print(g);
  const auto got = eval(g, in);
  Matrix dy = floats(in.at("c"));
  for (float& v : dy) v = -v;
  const int64_t padded = 256;
  Matrix rows(kTokens * padded, 0.0F);
  for (int64_t i = 0; i < kTokens; ++i)
    for (int64_t j = 0; j < kOut; ++j) rows[i * padded + j] = dy[i * kOut + j];
  rows = held("q4_k", rows, kTokens, padded);
  Matrix cut;
  for (int64_t i = 0; i < kTokens; ++i) cut.insert(cut.end(), &rows[i * padded], &rows[i * padded + kOut]);
  auto dx = product(cut, held("q8_0", transposed(floats(in.at("w")), kOut, kIn), kIn, kOut), kOut);
  for (double& v : dx) v = -v;
  expect_near(got[1].values, dx, "gradient of x");
}

// Scales come from the largest magnitudes of the last steps, whatever their order in the state; a history in order,
// oldest first, is one as well.
TEST(OperandFormats, DelayedScalesAreOfTheLastSteps) {
  const FormatRef f = library().get("fp8_tensor");
  const float sizes[] = {3, 0.5F, 8, 0, 1, 2, 0.25F, 0.125F, 4, 1, 0.5F, 0.5F};
  for (const int64_t length : {1, 2, 3, 4, 16}) {
    Graph g = layer();
    ProductType type = formats("fp8_tensor", "fp8_tensor", "fp8_e5m2_tensor");
    type.sources = {FieldSource::delayed, FieldSource::delayed, FieldSource::delayed, length};
    round_products(g, type);
    ASSERT_EQ(verify(g), "") << print(g);
    const std::string history = std::string(kHistoryState) + "w.activation";
    ASSERT_GE(g.find_input(history), 0) << print(g);
    auto in = random_inputs(g, 1, 11);
    std::vector<double> last(length, 0.0);
    // As steps wrote it that moved all.
    for (int64_t i = 0; i < length; ++i) last[i] = 0.5 * static_cast<double>(i % 5);
    for (ValueId v : g.inputs())
      if (g[v].attributes.name.starts_with(kHistoryState)) {
        in.at(g[v].attributes.name).values.assign(length, 0.0);
        if (g[v].attributes.name == history) in.at(history).values.assign(last.begin(), last.end());
      }
    const auto plain = in.at("x").values;
    for (const float size : sizes) {
      for (size_t i = 0; i < plain.size(); ++i) in.at("x").values[i] = plain[i] * size;
      double most = 0;
      for (const double v : in.at("x").values) most = std::max(most, std::abs(v));
      std::map<std::string, Tensor> states;
      const auto got = eval(g, in, {}, &states);
      // The product with x as the largest of the last steps encodes it.
      const double largest = *std::max_element(last.begin(), last.end());
      const double scale = largest == 0 ? 1.0F : static_cast<float>(largest) / 448.0F;
      Matrix x = floats(in.at("x"));
      for (float& v : x) v = -v;
      x = decode(*f, encode(*f, x, kTokens, kIn, std::vector<SuppliedField>{{tensor_scale(*f), {scale}}}), kTokens,
                 kIn);
      const Matrix w = floats(in.at("w")), dy = floats(in.at("c"));
      const double of_w = std::abs(*std::max_element(in.at(std::string(kHistoryState) + "w.weight").values.begin(),
                                                     in.at(std::string(kHistoryState) + "w.weight").values.end(),
                                                     [](double a, double b) { return std::abs(a) < std::abs(b); }));
      const double scale_of_w = of_w == 0 ? 1.0F : static_cast<float>(of_w) / 448.0F;
      const Matrix held_w =
          decode(*f, encode(*f, w, kOut, kIn, std::vector<SuppliedField>{{tensor_scale(*f), {scale_of_w}}}), kOut, kIn);
      const auto y = product(x, held_w, kIn);
      double loss = 0, sum = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        loss -= y[i] * dy[i];
        sum += std::abs(y[i] * dy[i]);
      }
      EXPECT_NEAR(got[0].values[0], loss, 1e-5 * sum) << length << " " << size;
      last.erase(last.begin());
      last.push_back(most);
      for (auto& [name, t] : states) in[name] = t;
      std::vector<double> kept;
      for (const double v : in.at(history).values) kept.push_back(std::abs(v));
      EXPECT_EQ(kept.back(), most) << "the newest is last";
      std::vector<double> want = last;
      std::ranges::sort(kept);
      std::ranges::sort(want);
      EXPECT_EQ(kept, want) << length << " " << size;
    }
  }
}

TEST(OperandFormats, RunsThatDoNotDivideAreRefused) {
  Graph g = layer();
  ProductType type = formats("fp8_row", "fp8_row", "fp8_row");
  type.rotations = {64, 0, 0};
  EXPECT_THROW(round_products(g, type), Error);
}

}  // namespace
}  // namespace lumen::graph
