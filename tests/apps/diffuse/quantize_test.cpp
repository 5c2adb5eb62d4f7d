// Needs: cpu. Quantization by structure: what is found in a diffusion transformer, what products read at all steps, and
// codes whose network does what the method's plain arithmetic says.
#include "apps/diffuse/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "tests/apps/diffuse/quantize_case.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

using SegmentWidths = std::vector<int64_t>;

QuantizeFormats formats_named(const char* weights, const char* activations) {
  return {test_library()->formats().get(weights), test_library()->formats().get(activations)};
}

const ProductReads& reads_named(const std::vector<ProductReads>& all, const std::string& weight) {
  return *std::ranges::find_if(all, [&](const ProductReads& r) { return r.site.weight == weight; });
}

TEST(QuantizeDiffusion, FindsWhatATransformerHas) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  ASSERT_EQ(reads.size(), 3 + 2 * 5 + 2U);
  const auto site = [&](const char* weight) { return reads_named(reads, weight).site; };
  for (const char* weight : {"layers.0.modulation", "layers.1.modulation"}) {
    EXPECT_EQ(site(weight).row_segments, SegmentWidths(6, 32));
    EXPECT_TRUE(site(weight).is_polar);
  }
  EXPECT_EQ(site("last_modulation").row_segments, SegmentWidths(2, 32));
  EXPECT_EQ(site("layers.1.qkv").row_segments, SegmentWidths(3, 32));
  EXPECT_FALSE(site("layers.1.qkv").is_polar);
  EXPECT_EQ(site("layers.0.out").column_segments, SegmentWidths(2, 16)) << "heads";
  EXPECT_TRUE(site("layers.0.down").is_polar) << "behind GELU";
  EXPECT_TRUE(site("time_down").is_polar);
  EXPECT_EQ(site("time_up").column_segments, SegmentWidths(2, 128)) << "cosines and sines";
  for (const char* weight : {"patch_in", "patch_out", "layers.0.up"}) {
    EXPECT_TRUE(site(weight).row_segments.empty() && site(weight).column_segments.empty()) << weight;
    EXPECT_FALSE(site(weight).is_polar) << weight;
  }
  for (const ProductReads& r : reads) {
    EXPECT_LE(r.count(), 120);
    EXPECT_GE(r.count(), 60) << r.site.weight;
    for (int64_t i = 0; i < std::ssize(r.rows); ++i) {
      EXPECT_LE(r.rows[i], r.most[i % r.site.columns]);
      EXPECT_LE(-r.rows[i], r.least[i % r.site.columns]);
    }
  }
  const ProductReads& about = reads_named(reads, "layers.0.modulation");
  for (const float least : about.least) EXPECT_LE(least, 0.2785F) << "SiLU is above that";
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    all += double{b[i]} * b[i];
  }
  return std::sqrt(error / all);
}

apps::NetworkInputs some_noise() {
  apps::NetworkInputs in;
  in.symbols = {{"B", 4}};
  in.integers["label"] = {0, 1, 2, 3};
  in.numbers["guidance"] = {2};
  in.numbers["t"] = {0.9F, 0.6F, 0.4F, 0.1F};
  Draws draws(3);
  for (int i = 0; i < 4 * 144; ++i) in.numbers["x"].push_back(float(draws.normal()));
  return in;
}

TEST(QuantizeDiffusion, MethodsGiveWhatTheFloatsGive) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  const std::vector<float> exact = network->run("guided", some_noise());
  std::map<std::string, double> off, modulations;
  for (const auto& [name, formats, most] : {std::tuple("8", formats_named("int8", "int8"), 0.2),
                                            std::tuple("4", formats_named("int4_row", "int8_row"), 0.8)})
    for (const QuantizeMethod& method : quantize_methods()) {
      const bool runs = method.name == "plain" || method.name == "svdquant" || method.name == "segquant-g";
      if (!runs && name == std::string("4")) continue;
      const QuantizedWeights weights = quantize_network(engine(), *network, reads, method, formats, 4);
      const std::string key = std::string(name) + method.name;
      if (runs) {
        use_quantized(*network, weights, "few");
        off[key] = relative_difference(network->run("guided", some_noise(), false, "few"), exact);
        EXPECT_LT(off[key], most) << key;
        EXPECT_GT(off[key], 1e-6) << key;
      }
      for (size_t i = 0; i < reads.size(); ++i)
        if (reads[i].site.is_polar && !reads[i].site.row_segments.empty())
          modulations[key] += weights[i].error * weights[i].error;
    }
  EXPECT_EQ(network->run("guided", some_noise()), exact) << "the floats are as they were";
  // Scales of the tensor gain by segments; rows of weights had their own before.
  EXPECT_LT(modulations["8segments"], 0.81 * modulations["8smoothquant"]);
  EXPECT_LT(modulations["8both"], modulations["8signs"]);
  EXPECT_LT(off["4svdquant"], off["4plain"]);
}

// The error that is told is that of the network: a product's result with codes, less that without.
TEST(QuantizeDiffusion, ErrorsAreThoseOfTheGraph) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  for (const char* name : {"plain", "both", "segquant-a"}) {
    Quantization quantization(engine(), formats_named("int8", "int8"), 2);
    for (const char* weight : {"layers.0.modulation", "layers.1.out", "layers.1.down"}) {
      const ProductReads& r = reads_named(reads, weight);
      const std::vector<float> w = network->read(weight);
      const QuantizedWeight q = quantization.weight(quantize_method(name), r, w);
      // y = x w^T alone, as a graph of its own.
      graph::Graph g;
      graph::Builder build(g);
      const graph::ValueId x =
          build.input("x", graph::Role::data, {{graph::Dim(r.count()), graph::Dim(r.site.columns)}, {}});
      const graph::ValueId of_w =
          build.input(weight, graph::Role::parameter, {{graph::Dim(r.site.rows), graph::Dim(r.site.columns)}, {}});
      g.results = {build.contract(x, of_w, "mk", "nk", "mn")};
      g.result_names = {model::arch::kResult};
      const graph::Graph few = graph::quantize_products(g, {q.product});
      const auto program = engine().compile(few, {});
      std::vector<run::DeviceTensorRef> kept;
      for (const std::string& input : program->input_names()) {
        kept.push_back(std::make_shared<run::DeviceTensor>(engine().device(), program->input_type(input)));
        if (input == "x")
          kept.back()->upload(r.rows.data(), kept.back()->bytes());
        else if (input != weight)
          kept.back()->upload(q.inputs.at(input).bytes.data(), kept.back()->bytes());
        program->bind(input, kept.back());
      }
      program->run();
      std::vector<float> y(r.count() * r.site.rows);
      program->result(model::arch::kResult)->download(y.data(), program->result(model::arch::kResult)->bytes());
      double error = 0;
      for (int64_t m = 0; m < r.count(); ++m)
        for (int64_t n = 0; n < r.site.rows; ++n) {
          double exact = 0;
          for (int64_t k = 0; k < r.site.columns; ++k)
            exact += double{r.rows[m * r.site.columns + k]} * w[n * r.site.columns + k];
          error += std::pow(y[m * r.site.rows + n] - exact, 2);
        }
      EXPECT_NEAR(std::sqrt(error), q.error, 0.01 * q.error) << name << " " << weight;
    }
  }
}

// Blocks of 32 do not divide patches of 16 numbers: zeros stand behind, of which the error shows nothing.
TEST(QuantizeDiffusion, ColumnsThatAreNoBlocks) {
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  const ProductReads& in = reads_named(reads, "patch_in");
  ASSERT_EQ(in.site.columns, 16);
  const std::vector<float> exact = network->run("guided", some_noise());
  for (const char* method : {"plain", "segquant-g"}) {
    const QuantizedWeights weights = quantize_network(engine(), *network, reads, quantize_method(method),
                                                      formats_named("int8_block", "int8_block"), 2);
    for (const QuantizedWeight& w : weights) EXPECT_LT(w.error, 0.03 * w.signal) << w.product.weight;
    use_quantized(*network, weights, "few");
    EXPECT_LT(relative_difference(network->run("guided", some_noise(), false, "few"), exact), 0.05) << method;
  }
}

TEST(QuantizeDiffusion, WhatCannotBe) {
  EXPECT_THROW((void)quantize_method("slow"), Error);
  const auto network = small_transformer();
  const std::vector<ProductReads> reads = small_reads(*network);
  Quantization quantization(engine(), formats_named("int8", "int8"), 0);
  EXPECT_THROW((void)quantization.weight(quantize_method("plain"), reads[0], std::vector<float>(3)), Error);
}

}  // namespace
}  // namespace lumen::diffuse
