// Needs: none. Products with ranges known before they run: against the specification as plain loops, bit for bit.
#include "apps/classify/ranges/ranges.h"

#include <gtest/gtest.h>

#include "base/file/file.h"
#include "graph/elaborate/elaborate.h"
#include "graph/ir/text.h"
#include "graph/ir/verify.h"
#include "graph/pipeline/pipeline.h"
#include "lang/parser.h"
#include "tests/apps/classify/ranges/plain_ranges.h"
#include "tests/graph/plan_run.h"

namespace lumen::graph {
namespace {

// A function of the language, whose inputs but x and y are parameters.
Graph ranged_function(const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(LUMEN_SOURCE_DIR) / "models" / "functions.lum";
  const lang::File functions = lang::parse_file(std::make_shared<Source>(Source{"functions.lum", read_file(path)}));
  const lang::File file = lang::parse_file(std::make_shared<Source>(Source{"test.lum", text}));
  Scope scope;
  scope.files = {&functions, &file};
  Graph g = elaborate_function(scope, file.functions.back());
  for (const ValueId v : g.inputs())
    if (g[v].attributes.name != "x") g[v].attributes.role = Role::parameter;
  return g;
}

std::string convolution_text(const PlainCase& c) {
  return fmt::format(
      "fn f(x: f32[{}, {}, {}, {}], w: f32[{}, {}, {}, {}], b: f32[{}]) = "
      "conv2d(x, w, stride = {}, padding = {}, dilation = {}, groups = {}) + b",
      c.samples, c.height, c.width, c.channels, c.outputs, c.kernel, c.kernel, c.channels / c.groups, c.outputs,
      c.stride, c.padding, c.dilation, c.groups);
}

std::vector<float> draws_of(int64_t count, uint64_t seed, float mean, float deviation) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

// Samples of different magnitude, one of which is all zeros where there are three; an output without weights.
std::vector<float> images_of(const PlainCase& c) {
  std::vector<float> x = draws_of(c.samples * c.height * c.width * c.channels, 5, 0.3F, 1);
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    const int64_t n = i * c.samples / std::ssize(x);
    x[i] *= n == 2 ? 0 : 1 + 3 * float(n);
  }
  return x;
}

const PlainCase kCases[] = {
    {.samples = 1, .channels = 16, .outputs = 8},
    {.samples = 4, .channels = 33, .outputs = 7},
    {.samples = 3, .height = 7, .width = 9, .channels = 5, .outputs = 6, .kernel = 3, .padding = 1},
    {.samples = 2, .height = 8, .width = 8, .channels = 4, .outputs = 5, .kernel = 3, .stride = 2, .padding = 1},
    {.samples = 2, .height = 9, .width = 7, .channels = 3, .outputs = 4, .kernel = 2, .padding = 2, .dilation = 3},
    {.samples = 2, .height = 6, .width = 6, .channels = 3, .outputs = 4, .kernel = 3},
};
const PlainCase kGrouped[] = {
    {.samples = 2, .height = 6, .width = 6, .channels = 8, .outputs = 12, .kernel = 3, .padding = 1, .groups = 4},
    {.samples = 3, .height = 6, .width = 5, .channels = 6, .outputs = 6, .kernel = 3, .padding = 1, .groups = 6},
};

void check_case(const PlainCase& c, RangeSource source, bool by_channel, int64_t gamma) {
  SCOPED_TRACE(fmt::format("{} source {} channel {} gamma {}", convolution_text(c), int(source), by_channel, gamma));
  std::vector<float> w = draws_of(c.outputs * c.columns(), 6, 0.01F, 0.1F), shift = draws_of(c.outputs, 7, 0, 0.3F);
  for (int64_t i = 0; i < c.columns(); ++i) w[i] = 0;
  shift[0] = 0;
  const PlainWeights weights = quantized_weights(w, shift, c, by_channel);
  const std::vector<float> x = images_of(c);
  const Graph g =
      with_ranges(ranged_function(convolution_text(c)), {.samples = c.samples,
                                                         .source = source,
                                                         .per = by_channel ? RangePer::channel : RangePer::tensor,
                                                         .gamma = gamma});
  ASSERT_EQ(verify(g), "");
  auto inputs = plain_inputs("w", c, weights);
  inputs["x"] = plain_tensor(x, {Dim(c.samples), Dim(c.height), Dim(c.width), Dim(c.channels)});
  for (const ValueId v : g.inputs()) {
    const std::string& name = g[v].attributes.name;
    if (name.starts_with("value.")) inputs[name] = plain_tensor({name.ends_with(".low") ? -3.F : 4.F}, {Dim(1)});
  }
  const std::vector<float> want = plain_result(c, weights, x, source, by_channel, gamma);
  const std::vector<double> got = eval(g, inputs)[0].values;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(float(got[i]), want[i]) << i;
  const Pipeline made = plan_graph(g);
  const PlanRun run = run_plan(made.plan, made.memory, inputs);
  EXPECT_EQ(run.wrong, "");
}

TEST(Ranges, AreThoseOfTheSpecification) {
  for (const PlainCase& c : kCases)
    for (const RangeSource source : {RangeSource::fixed, RangeSource::dynamic, RangeSource::estimate})
      for (const bool by_channel : {false, true})
        for (const int64_t gamma : {1, 2, 4})
          if (gamma == 1 || source == RangeSource::estimate) check_case(c, source, by_channel, gamma);
}

TEST(Ranges, GroupsSumTheirOwnChannelsAlone) {
  for (const PlainCase& c : kGrouped)
    for (const RangeSource source : {RangeSource::fixed, RangeSource::dynamic, RangeSource::estimate}) {
      check_case(c, source, true, 1);
      if (source != RangeSource::estimate) check_case(c, source, false, 1);
    }
}

// Groups are further positions of one mixture, depthwise channels normals of their own: not much is clipped, and scales
// are not much coarser than those of the true range.
TEST(Ranges, GroupsAreOneMixturePerTensor) {
  for (const PlainCase& c : kGrouped) {
    SCOPED_TRACE(convolution_text(c));
    const std::vector<float> w = draws_of(c.outputs * c.columns(), 6, 0.01F, 0.1F), shift(c.outputs, 0.1F);
    PlainWeights weights = quantized_weights(w, shift, c, false);
    weights.below = weights.above = {4};
    const std::vector<float> x = images_of(c);
    RangeOptions options;
    options.samples = c.samples;
    auto inputs = plain_inputs("w", c, weights);
    inputs["x"] = plain_tensor(x, {Dim(c.samples), Dim(c.height), Dim(c.width), Dim(c.channels)});
    const std::vector<double> estimated =
        eval(with_ranges(ranged_function(convolution_text(c)), options), inputs)[0].values;
    const std::vector<float> real = plain_result(c, weights, x, RangeSource::dynamic, false, 1);
    const int64_t each = std::ssize(real) / c.samples;
    for (int64_t n = 0; n < c.samples; ++n) {
      float range = 0;
      double off = 0;
      for (int64_t i = n * each; i < (n + 1) * each; ++i) range = std::max(range, std::fabs(real[i]));
      for (int64_t i = n * each; i < (n + 1) * each; ++i) off += std::fabs(estimated[i] - real[i]) / double(each);
      EXPECT_LT(off, 0.015 * range) << n;
    }
  }
}

// Section 5: a linear layer of 512 columns and 256 channels, weights N(.01, .05), inputs as a rectifier leaves them.
TEST(Ranges, EstimatesOfASyntheticLayerAreAsGoodAsTheSpecificationSays) {
  constexpr int64_t kSamples = 64;
  const PlainCase c{.samples = kSamples, .channels = 512, .outputs = 256};
  const PlainWeights w =
      quantized_weights(draws_of(c.outputs * 512, 11, 0.01F, 0.05F), std::vector<float>(c.outputs), c, false);
  std::vector<float> x = draws_of(kSamples * 512, 12, 0, 1);
  const std::vector<float> magnitude = draws_of(kSamples, 13, 0, 1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::max(x[i], 0.F) * std::exp(magnitude[i / 512]);
  const Graph g = with_ranges(ranged_function("fn f(x: f32[64, 512], w: f32[256, 512]) = linear(x, w)"),
                              {.samples = kSamples, .calibrates = true});
  auto inputs = plain_inputs("w", c, w);
  inputs["x"] = plain_tensor(x, {Dim(kSamples), Dim(512)});
  const std::vector<Tensor> results = eval(g, inputs);
  std::map<std::string, std::vector<double>> by_name;
  for (size_t i = 0; i < results.size(); ++i) by_name[g.result_names[i]] = results[i].values;
  // The estimate's mean and deviation, from where the ends are.
  double off_mean = 0, off_deviation = 0, covered[3] = {};
  for (int64_t n = 0; n < kSamples; ++n) {
    const double low = by_name.at("w.low")[n], high = by_name.at("w.high")[n];
    const double below = by_name.at("w.below")[n], above = by_name.at("w.above")[n];
    const double deviation = (high - low) / (below + above), mean = low + below * deviation;
    double sum = 0, square = 0;
    std::vector<double> y;
    for (int64_t o = 0; o < c.outputs; ++o) {
      double one = 0;
      for (int64_t k = 0; k < 512; ++k) one += double(w.codes[o * 512 + k]) * w.scale[o] * x[n * 512 + k];
      y.push_back(one);
      sum += one;
      square += one * one;
    }
    const double own_mean = sum / c.outputs, own = std::sqrt(square / c.outputs - own_mean * own_mean);
    off_mean += std::fabs(mean - own_mean) / own / kSamples;
    off_deviation += std::fabs(deviation - own) / own / kSamples;
    for (int k = 0; k < 3; ++k)
      for (const double one : y) covered[k] += std::fabs(one - mean) <= (k + 2) * deviation;
  }
  const double all = double(kSamples * c.outputs);
  EXPECT_NEAR(off_mean, 0.044, 0.02);
  EXPECT_NEAR(off_deviation, 0.035, 0.02);
  EXPECT_NEAR(covered[0] / all, 0.948, 0.02);
  EXPECT_NEAR(covered[1] / all, 0.997, 0.02);
  EXPECT_NEAR(covered[2] / all, 0.9999, 0.02);
  RecordProperty("errors", fmt::format("{:.4f} {:.4f} {:.4f} {:.4f} {:.5f}", off_mean, off_deviation, covered[0] / all,
                                       covered[1] / all, covered[2] / all));
}

// No 32-bit number of a result lies in memory where the range is known before.
TEST(Ranges, SumsOf32BitsStayInTheirKernels) {
  constexpr int64_t kOutputs = 32, kNumbers = 2 * 256 * kOutputs;
  std::map<RangeSource, int64_t> arena;
  for (const RangeSource source : {RangeSource::fixed, RangeSource::dynamic, RangeSource::estimate}) {
    const Graph g = ranged_function(
        "fn f(x: f32[2, 16, 16, 16], w: f32[32, 3, 3, 16], d: f32[4, 8192]) = "
        "linear(reshape(relu(conv2d(x, w, padding = 1)), [2, 8192]), d)");
    const Pipeline made = plan_graph(with_ranges(g, {.samples = 2, .source = source}));
    arena[source] = made.memory.arena_bytes;
    int64_t sums = 0;
    for (const Group& group : made.plan.groups)
      for (const ValueId v : group.results) {
        const Type& type = made.plan.graph[v].type;
        sums += type.element.scalar == Scalar::i32 && elements(type.shape).number() >= kNumbers;
      }
    EXPECT_EQ(sums, source == RangeSource::dynamic) << int(source);
  }
  constexpr int64_t kEachChannel = 2 * kOutputs * 4;
  EXPECT_LE(arena[RangeSource::estimate], arena[RangeSource::fixed] + 16 * kEachChannel);
  RecordProperty("arena", fmt::format("{} {} {}", arena[RangeSource::fixed], arena[RangeSource::estimate],
                                      arena[RangeSource::dynamic]));
  EXPECT_GE(arena[RangeSource::dynamic], arena[RangeSource::fixed] + 2 * kNumbers);
}

TEST(Ranges, ChainsByChannelGoIntoTheWeights) {
  const Graph g = ranged_function(
      "fn f(x: f32[2, 4, 4, 3], w: f32[5, 3, 3, 3], a: f32[5], b: f32[5], m: f32[5], v: f32[5]) = "
      "relu(batch_norm_of(conv2d(x, w, padding = 1), a, b, m, v))");
  const std::vector<RangedProduct> products = ranged_products(g, 2);
  ASSERT_EQ(products.size(), 1U);
  EXPECT_EQ(products[0].name, "w");
  EXPECT_EQ(products[0].channels, 5);
  EXPECT_EQ(products[0].columns, 27);
  EXPECT_EQ(products[0].positions, 16);
  const Graph folded = folded_weights(g, 2);
  std::map<std::string, Tensor> in;
  in["w"] = plain_tensor(draws_of(135, 1, 0, 1), {Dim(5), Dim(3), Dim(3), Dim(3)});
  for (const auto& [name, seed] : {std::pair("a", 2), {"b", 3}, {"m", 4}})
    in[name] = plain_tensor(draws_of(5, seed, 0, 1), {Dim(5)});
  in["v"] = plain_tensor({1, 2, 3, 4, 0.5F}, {Dim(5)});
  const std::vector<Tensor> out = eval(folded, in);
  ASSERT_EQ(folded.result_names, (std::vector<std::string>{"w.weight", "w.shift"}));
  for (int o = 0; o < 5; ++o) {
    const double by = in["a"].values[o] / std::sqrt(in["v"].values[o] + 1e-5);
    EXPECT_NEAR(out[1].values[o], in["b"].values[o] - by * in["m"].values[o], 1e-5);
    for (int k = 0; k < 27; ++k) EXPECT_NEAR(out[0].values[o * 27 + k], by * in["w"].values[o * 27 + k], 1e-5);
  }
}

TEST(Ranges, ProductsBehindNormalizationsAreKnown) {
  const std::vector<RangedProduct> products =
      ranged_products(ranged_function("fn f(x: f32[3, 8], n: f32[8], w: f32[5, 8], u: f32[5, 8], d: f32[2, 5]) = "
                                      "linear(relu(linear(rms_norm(x, n, 0.00001), w)) * linear(x, u), d)"),
                      3);
  ASSERT_EQ(products.size(), 3U);
  for (const RangedProduct& p : products) EXPECT_EQ(p.follows_norm, p.name == "w") << p.name;
}

// From one product's codes to the next one's: rectified and pooled as codes, added as numbers, read as codes again.
TEST(Ranges, CodesGoOnFromProductToProduct) {
  const Graph g = ranged_function(
      "fn f(x: f32[2, 8, 8, 3], w: f32[4, 3, 3, 3], u: f32[4, 3, 3, 4], d: f32[6, 64]) {\n"
      "  let one = max_pool2d(relu(conv2d(x, w, padding = 1)), 2, 2)\n"
      "  let two = relu(conv2d(one, u, padding = 1) + one)\n"
      "  return linear(reshape(two, [2, 64]), d)\n}");
  for (const RangePer per : {RangePer::tensor, RangePer::channel})
    for (const RangeSource source : {RangeSource::fixed, RangeSource::dynamic, RangeSource::estimate}) {
      const Graph ranged = with_ranges(g, {.samples = 2, .source = source, .per = per});
      ASSERT_EQ(verify(ranged), "");
      int products = 0;
      for (const Node& node : ranged.nodes) {
        if (node.op == Op::contract_) {
          EXPECT_EQ(node.type.element.scalar, Scalar::i32);
        }
        products += node.op == Op::input_ && node.type.element.scalar == Scalar::i8;
      }
      EXPECT_EQ(products, 3);
      for (const ValueId v : ranged.inputs()) EXPECT_FALSE(ranged[v].attributes.name == "w");
    }
  const RangeOptions floats{.samples = 2, .floats = {"w", "u", "d"}};
  Graph plain = with_ranges(g, floats);
  for (const Node& node : plain.nodes) EXPECT_NE(node.type.element.scalar, Scalar::i8);
}

}  // namespace
}  // namespace lumen::graph
