// Needs: cpu. A U-Net in few bits: its convolutions are found, calibrated by windows, and executed by the engine as the
// evaluator reads them; images keep near those of the float network; files give the same bits back.
#include <algorithm>
#include <cmath>
#include <set>

#include "apps/diffuse/quality.h"
#include "apps/diffuse/stored.h"
#include "apps/draws/draws.h"
#include "graph/ir/eval.h"
#include "tests/model/tiny.h"

namespace lumen::diffuse {

using model::engine;
using model::test_library;

namespace {

const Sampling kUNetSteps{.steps = 4, .guidance = 2, .seed = 3, .batch = 4};
const std::vector<int32_t> kUNetLabels = {0, 1, 2, 3};

// Weights are all of some size, as trained ones are.
std::unique_ptr<apps::Network> small_unet() {
  apps::NetworkSettings s;
  s.family = "unet";
  s.config = {{"size", 12}, {"width", 12}, {"hidden", 16}, {"waves", 16}, {"classes", 4}};
  auto out = std::make_unique<apps::Network>(engine(), *test_library(), s);
  uint64_t number = 0;
  for (const model::arch::Parameter& p : out->parameters()) {
    std::vector<float> w = out->read(p.name);
    Draws draws(5, 78, number++);
    const double size = p.shape.size() == 4 ? 0.5 / std::sqrt(double(w.size()) / p.shape[0].number()) : 0.1;
    for (float& v : w) v += float(size * draws.normal());
    out->write(p.name, w);
  }
  return out;
}

struct UNetReads {
  std::vector<ProductReads> products;
  std::vector<graph::LeftWeight> left;
  const ProductReads& named(const std::string& weight) const {
    return *std::ranges::find_if(products, [&](const ProductReads& r) { return r.site.weight == weight; });
  }
};

UNetReads unet_reads(apps::Network& network) {
  UNetReads out;
  out.products = collect_reads(network, {0, 1, 2, 3, 0, 1}, {.steps = 4, .guidance = 2, .seed = 9, .batch = 3},
                               {160, 1}, nullptr, {}, &out.left);
  return out;
}

QuantizeFormats unet_formats(const char* weights, const char* activations) {
  return {test_library()->formats().get(weights), test_library()->formats().get(activations)};
}

TEST(QuantizeUNet, FindsWhatItHas) {
  const auto network = small_unet();
  const UNetReads reads = unet_reads(*network);
  EXPECT_TRUE(reads.left.empty());
  std::set<std::string> convolutions;
  for (const ProductReads& r : reads.products) {
    // Times are those of 3 images at each of 8 runs, twice for guidance.
    EXPECT_GE(r.count(), r.site.window.empty() ? 48 : 80) << r.site.weight;
    EXPECT_LE(r.count(), 160) << r.site.weight;
    for (int64_t i = 0; i < std::ssize(r.rows); ++i) {
      EXPECT_LE(r.rows[i], r.most[i % r.site.columns]);
      EXPECT_LE(-r.rows[i], r.least[i % r.site.columns]);
    }
    if (!r.site.window.empty()) convolutions.insert(r.site.weight);
  }
  EXPECT_EQ(convolutions.size(), 6 + 2 * 5U);
  EXPECT_EQ(reads.products.size(), convolutions.size() + 2 + 5) << "times and modulations";
  const graph::ProductSite joined = reads.named("join_half").site;
  EXPECT_EQ(joined.window, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(joined.column_segments, (std::vector<int64_t>{108, 108}));
  EXPECT_FALSE(joined.is_polar);
  for (const char* weight : {"layers.0.first", "layers.4.second", "leave"}) {
    EXPECT_TRUE(reads.named(weight).site.is_polar) << weight;
    for (const float least : reads.named(weight).least) EXPECT_LE(least, 0.2785F) << "SiLU is above that";
  }
  EXPECT_FALSE(reads.named("enter").site.is_polar);
  // A window's rows at borders hold the zeros around the image.
  const ProductReads& first = reads.named("enter");
  EXPECT_GT(std::ranges::count(first.rows, 0.0F), 10);
  // The same rows again.
  EXPECT_EQ(unet_reads(*network).named("half").rows, reads.named("half").rows);
}

// The evaluator's meaning of a quantized convolution, with scales, segments, both signs and a way beside, is what the
// engine computes, and the error that is told is that of it.
TEST(QuantizeUNet, ErrorsAreThoseOfTheGraph) {
  const auto network = small_unet();
  const UNetReads reads = unet_reads(*network);
  for (const auto& [method, weight, formats] :
       {std::tuple("segquant-a", "join_half", unet_formats("int8", "int8")),
        std::tuple("both", "layers.1.first", unet_formats("int8", "int8")),
        std::tuple("segquant-g", "layers.4.second", unet_formats("int4_row", "int8_row")),
        std::tuple("svdquant", "enter", unet_formats("int4_row", "int4_row")),
        std::tuple("segments", "join_whole", unet_formats("int4_row", "int8_row"))}) {
    const ProductReads& r = reads.named(weight);
    Quantization quantization(engine(), formats, 2);
    const std::vector<float> w = network->read(weight);
    const QuantizedWeight q = quantization.weight(quantize_method(method), r, w);
    EXPECT_EQ(q.product.places, 9);
    // Windows of the rows that were kept, each an image of its own that is one window.
    const int64_t channels = r.site.columns / 9;
    graph::Graph g;
    graph::Builder build(g);
    const graph::Shape image = {graph::Dim(r.count()), graph::Dim(3), graph::Dim(3), graph::Dim(channels)};
    const graph::ValueId x = build.input("x", graph::Role::data, {image, {}});
    graph::Shape shape = image;
    shape[0] = graph::Dim(r.site.rows);
    const graph::ValueId of_w = build.input(weight, graph::Role::parameter, {shape, {}});
    const graph::ValueId windows = build.windows(
        x, {0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, /**/ 0, 1, 1, 0, 0, 0, /**/ 0, 0, 0, 1, 1, 0, /**/ 0, 0, 0, 0, 0, 1},
        {graph::Dim(r.count()), graph::Dim(1), graph::Dim(3), graph::Dim(1), graph::Dim(3), graph::Dim(channels)});
    g.results = {build.contract(windows, of_w, "nhivjc", "oijc", "nhvo")};
    g.result_names = {model::arch::kResult};
    const graph::Graph few = graph::quantize_products(g, {q.product});
    const auto program = engine().compile(few, {});
    std::map<std::string, graph::Tensor> evaluated;
    std::vector<run::DeviceTensorRef> kept;
    for (const std::string& input : program->input_names()) {
      kept.push_back(std::make_shared<run::DeviceTensor>(engine().device(), program->input_type(input)));
      graph::Tensor& tensor = evaluated[input];
      tensor.type = program->input_type(input);
      if (input == "x" || input == weight) {
        const std::vector<float>& numbers = input == "x" ? r.rows : w;
        tensor.values.assign(numbers.begin(), numbers.end());
        kept.back()->upload(numbers.data(), kept.back()->bytes());
      } else {
        const std::vector<uint8_t>& bytes = q.inputs.at(input).bytes;
        kept.back()->upload(bytes.data(), kept.back()->bytes());
        if (tensor.type.element.format) {
          tensor.blob = bytes;
        } else {
          const auto* const numbers = reinterpret_cast<const float*>(bytes.data());
          tensor.values.assign(numbers, numbers + bytes.size() / sizeof(float));
        }
      }
      program->bind(input, kept.back());
    }
    if (!evaluated.contains(weight)) {
      evaluated[weight].type = {shape, {}};
      evaluated[weight].values.assign(w.begin(), w.end());
    }
    program->run();
    std::vector<float> y(r.count() * r.site.rows);
    program->result(model::arch::kResult)->download(y.data(), program->result(model::arch::kResult)->bytes());
    const std::vector<double> meant = graph::eval(few, evaluated)[0].values;
    double error = 0;
    for (int64_t m = 0; m < r.count(); ++m)
      for (int64_t n = 0; n < r.site.rows; ++n) {
        const size_t at = m * r.site.rows + n;
        double exact = 0;
        for (int64_t k = 0; k < r.site.columns; ++k)
          exact += double{r.rows[m * r.site.columns + k]} * w[n * r.site.columns + k];
        error += std::pow(y[at] - exact, 2);
        ASSERT_NEAR(y[at], meant[at], 1e-4 * (1 + std::abs(meant[at]))) << method << " " << weight;
      }
    EXPECT_NEAR(std::sqrt(error), q.error, 0.01 * q.error) << method << " " << weight;
  }
}

TEST(QuantizeUNet, ImagesKeepNearThoseOfFloats) {
  const auto network = small_unet();
  const UNetReads reads = unet_reads(*network);
  const std::vector<float> exact = sampled(*network, kUNetLabels, kUNetSteps);
  Sampling how = kUNetSteps;
  how.change = "few";
  std::map<std::string, double> decibels;
  for (const auto& [name, method, formats] : {std::tuple("8", "plain", unet_formats("int8", "int8")),
                                              std::tuple("8", "segquant-g", unet_formats("int8", "int8")),
                                              std::tuple("8 rows", "plain", unet_formats("int8_row", "int8_row")),
                                              std::tuple("4", "plain", unet_formats("int4_row", "int8_row")),
                                              std::tuple("4", "segquant-g", unet_formats("int4_row", "int8_row"))}) {
    // The first convolution has 9 columns: codes of 4 bits lie in pairs.
    const QuantizedWeights weights =
        quantize_network(engine(), *network, reads.products, quantize_method(method), formats, 4);
    use_quantized(*network, weights, "few");
    decibels[fmt::format("{} {}", name, method)] =
        peak_signal_to_noise(exact, sampled(*network, kUNetLabels, how), 12 * 12);
  }
  for (const auto& [name, psnr] : decibels) RecordProperty(name, std::to_string(psnr));
  // Seen: 52, 56, 57, 36 and 42 dB.
  EXPECT_GT(decibels["8 plain"], 46);
  EXPECT_GT(decibels["8 rows plain"], 50);
  EXPECT_GT(decibels["8 segquant-g"], 50);
  EXPECT_GT(decibels["4 plain"], 30);
  EXPECT_GT(decibels["4 segquant-g"], decibels["4 plain"] + 3);
  EXPECT_EQ(sampled(*network, kUNetLabels, kUNetSteps), exact) << "the floats are as they were";
}

TEST(QuantizeUNet, FilesGiveTheSameBits) {
  const auto network = small_unet();
  const UNetReads reads = unet_reads(*network);
  for (const auto& [method, formats] :
       {std::pair("segquant-g", unet_formats("int8", "int8")), {"both", unet_formats("int4_row", "int8_row")}}) {
    const QuantizedWeights weights =
        quantize_network(engine(), *network, reads.products, quantize_method(method), formats, 2);
    use_quantized(*network, weights, "few");
    Sampling how = kUNetSteps;
    how.change = "few";
    const std::vector<float> drawn = sampled(*network, kUNetLabels, how);
    const model::TestFolder folder;
    save_quantized(folder.path(), *network, weights, method);
    const DrawingNetwork again = load_drawing(engine(), *test_library(), folder.path());
    how.change = again.change;
    EXPECT_EQ(sampled(*again.network, kUNetLabels, how), drawn) << method;
  }
}

}  // namespace
}  // namespace lumen::diffuse
