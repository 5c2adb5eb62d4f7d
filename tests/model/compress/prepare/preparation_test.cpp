// needs: cpu. Preparations on the parts of models: what weights read follows what is done to them, the model computes
// the same, and outputs lose less where channels stand out.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "number/codec/codec.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& preparing_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model model_of(const std::string& family, std::map<std::string, double> more = {}) {
  const arch::FamilyRef f = test_library()->family(family);
  std::map<std::string, double> sizes{{"vocab", 40},   {"hidden", 64}, {"layers", 2},  {"heads", 4},
                                      {"kv_heads", 2}, {"ffn", 128},   {"context", 32}};
  sizes.merge(more);
  arch::Model m = initialise(f, f->config("", {sizes.begin(), sizes.end()}), 1);
  // Activations as large models have them: two channels of what each site's weights read stand out.
  for (const graph::ScaleSite& site : graph::scale_sites(transform_graph(m)))
    if (site.free > 8) inject_outliers(m, site, std::vector<int64_t>{1, 6}, 24);
  return m;
}

std::vector<text::TokenId> steps(int64_t count) {
  std::vector<text::TokenId> out;
  uint32_t state = 9;
  for (int64_t i = 0; i < count; ++i) out.push_back(((state = state * 1664525 + 1013904223) >> 18) % 40);
  return out;
}

struct Outcome {
  std::map<std::string, double> errors;
  std::vector<float> losses;
};
Outcome rounded(const arch::Model& m, const std::string& method, const std::string& format) {
  const TestFolder folder;
  ByLayersOptions o;
  o.method = parse_method(method);
  o.run = {.length = 16, .batch = 4};
  o.folder = folder / "w";
  o.source = "test";
  QuantizeOptions q;
  q.target = format;
  ByLayers run(preparing_engine(), m, choose_formats(m, q, nullptr), steps(30 * 16), o);
  EXPECT_TRUE(run.run());
  Outcome out;
  out.losses = run.losses();
  for (const RoundedTensor& t : run.report()) out.errors[t.name] = t.output_error;
  // The whole model in the result computes what the layers computed.
  arch::Model whole = run.outline();
  for (const arch::Parameter& p : m.parameters)
    if (whole.weights.at(p.name).bytes.size() == 0) whole.weights.at(p.name) = run.weight(p);
  calibrate::LayerRun again(preparing_engine(), whole, steps(30 * 16), o.run);
  calibrate::CarriedValues carried({}, "test");
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> held;
  for (size_t k = 0; k < again.parts(); ++k) {
    const auto weight = [&](const std::string& name) -> std::span<const float> {
      return held[name] = values_of(preparing_engine(), whole.weights.at(name));
    };
    const calibrate::PartRun part = again.run(k, weight, &carried, k + 1 == again.parts() ? nullptr : &carried);
    if (const auto found = part.results.find("loss"); found != part.results.end()) losses = found->second;
    if (k + 1 == again.parts() && losses.empty() && !part.results.empty()) losses = part.results.begin()->second;
  }
  EXPECT_EQ(losses, out.losses) << method;
  return out;
}

double total(const std::map<std::string, double>& errors) {
  double sum = 0;
  for (const auto& [name, e] : errors) sum += std::max(e, 0.0);
  return sum;
}

// How far channels of keys lie apart: the largest row of the weight beside the least.
double unevenness(const arch::Weight& wk) {
  double most = 0, least = 1e30;
  for (int64_t r = 0; r < wk.rows(); ++r) {
    double size = 0;
    for (const float v : wk.f32().subspan(r * wk.columns(), wk.columns())) size += static_cast<double>(v) * v;
    most = std::max(most, std::sqrt(size));
    least = std::min(least, std::sqrt(size));
  }
  return most / least;
}

TEST(Preparation, KeysBecomeEven) {
  const arch::FamilyRef f = test_library()->family("llama");
  arch::Model m = initialise(
      f,
      f->config(
          "",
          {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 4}, {"kv_heads", 2}, {"ffn", 96}, {"context", 32}}),
      1);
  int uneven = 0;
  for (const graph::ScaleSite& site : graph::query_key_sites(transform_graph(m))) {
    std::vector<double> s(site.free, 1);
    for (size_t i = 0; i < s.size(); i += 3) s[i] = 30;
    apply_scales(m, site, s);
    ++uneven;
  }
  ASSERT_EQ(uneven, 2);
  EXPECT_GT(unevenness(m.weights.at("layers.1.wk")), 25);
  const TestFolder folder;
  ByLayersOptions o;
  o.method = parse_method("even-keys");
  o.run = {.length = 16, .batch = 4};
  o.folder = folder / "w";
  o.source = "test";
  QuantizeOptions q;
  q.target = "f32";
  ByLayers run(preparing_engine(), m, choose_formats(m, q, nullptr), steps(20 * 16), o);
  ASSERT_TRUE(run.run());
  for (const char* name : {"layers.0.wk", "layers.1.wk"}) {
    const arch::Weight w = run.weight(*m.find(name));
    EXPECT_LT(unevenness(arch::f32_weight(w.type.shape, values_of(preparing_engine(), w))), 4) << name;
  }
  const std::vector<float> plain = rounded(m, "rtn", "f32").losses, even = rounded(m, "even-keys", "f32").losses;
  ASSERT_EQ(plain.size(), even.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(even[i], plain[i], 1e-4);
}

TEST(Preparation, SumsFollowScales) {
  for (const arch::Model& m : {model_of("llama"), model_of("mixtral", {{"experts", 4}, {"picked", 2}})}) {
    const calibrate::LayerRunOptions options{.length = 16, .batch = 2};
    calibrate::LayerRun run(preparing_engine(), m, steps(10 * 16), options);
    graph::TapKinds kinds;
    kinds.squares = kinds.magnitudes = kinds.largest = kinds.gram = true;
    const auto weights_of = [](const arch::Model& of) {
      return [&of](const std::string& name) { return of.weights.at(name).f32(); };
    };
    calibrate::CarriedValues carried({}, "test");
    PartState state;
    state.model = m;
    state.reads = run.run(0, weights_of(m), nullptr, &carried, kinds).taps;
    uint32_t draw = 3;
    int scaled = 0;
    for (const graph::ScaleSite& site : graph::scale_sites(transform_graph(m))) {
      const bool here = std::ranges::all_of(site.changes, [&](const graph::ScaledParameter& c) {
        return std::ranges::find(run.part(0).parameters, c.parameter) != run.part(0).parameters.end();
      });
      if (!here || site.free == 0) continue;
      std::vector<double> s(site.free);
      for (double& x : s) x = 0.5 + ((draw = draw * 1664525 + 1013904223) >> 16) / 40000.0;
      apply_scales(state, site, s);
      ++scaled;
    }
    EXPECT_GE(scaled, 3);
    const std::vector<calibrate::TapSums> want = run.run(0, weights_of(state.model), nullptr, nullptr, kinds).taps;
    ASSERT_EQ(want.size(), state.reads.size());
    const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
      ASSERT_EQ(a.size(), b.size());
      double most = 0, largest = 0;
      for (size_t k = 0; k < a.size(); ++k) {
        most = std::max<double>(most, std::abs(a[k] - b[k]));
        largest = std::max<double>(largest, std::abs(a[k]));
      }
      EXPECT_LE(most, 1e-4 * largest);
    };
    for (size_t t = 0; t < want.size(); ++t) {
      near(want[t].squares, state.reads[t].squares);
      near(want[t].magnitudes, state.reads[t].magnitudes);
      near(want[t].largest, state.reads[t].largest);
      near(want[t].gram, state.reads[t].gram);
    }
  }
}

// What the papers' formulas give for one site in plain double precision; 0: SmoothQuant, else AWQ's twenty candidates.
std::vector<double> plain_scales(const PartState& state, const graph::ScaleSite& site, const FormatRef& format,
                                 bool smooths) {
  const calibrate::TapSums& reads = *reads_of(state.reads, site.readers.front());
  const size_t columns = reads.largest.size();
  std::vector<double> best;
  double least = 0;
  for (int k = 0; k < (smooths ? 1 : 20); ++k) {
    std::vector<double> s(columns);
    for (size_t c = 0; c < columns; ++c) {
      double w = 0;
      for (const std::string& reader : site.readers) {
        const std::span<const float> x = state.model.weights.at(reader).f32();
        for (size_t i = c; i < x.size(); i += columns) w = std::max(w, std::abs(double{x[i]}));
      }
      s[c] = smooths ? std::max(std::sqrt(reads.largest[c]) / std::sqrt(w), 1e-5)
                     : std::max(std::pow(double{reads.magnitudes[c]} / reads.rows, k / 20.0), 1e-4);
    }
    if (smooths) return s;
    const auto [low, high] = std::ranges::minmax(s);
    const double middle = std::sqrt(low * high);
    double lost = 0;
    for (double& x : s) x /= middle;
    for (const std::string& reader : site.readers) {
      const std::span<const float> w = state.model.weights.at(reader).f32();
      std::vector<float> scaled(w.begin(), w.end());
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= s[i % columns];
      const int64_t rows = scaled.size() / columns;
      const std::vector<float> y = decode(*format, encode(*format, scaled, rows, columns), rows, columns);
      for (int64_t r = 0; r < rows; ++r)
        for (size_t i = 0; i < columns; ++i)
          for (size_t j = 0; j < columns; ++j)
            lost += (y[r * columns + i] / s[i] - w[r * columns + i]) * reads.gram[i * columns + j] *
                    (y[r * columns + j] / s[j] - w[r * columns + j]);
    }
    if (!best.empty() && lost >= least) continue;
    least = lost;
    best = s;
  }
  return best;
}

TEST(Preparation, ScalesAreThoseOfPlainDoublePrecision) {
  const arch::Model m = model_of("llama");
  const FormatRef format = test_library()->formats().get("int4_g32");
  calibrate::LayerRun run(preparing_engine(), m, steps(10 * 16), {.length = 16, .batch = 2});
  graph::TapKinds kinds;
  kinds.magnitudes = kinds.largest = kinds.gram = true;
  const auto weight = [&](const std::string& name) { return m.weights.at(name).f32(); };
  calibrate::CarriedValues carried({}, "test");
  const std::vector<calibrate::TapSums> reads = run.run(0, weight, nullptr, &carried, kinds).taps;
  int sites = 0;
  for (const graph::ScaleSite& site : graph::scale_sites(transform_graph(m))) {
    const bool here = std::ranges::all_of(site.changes, [&](const graph::ScaledParameter& c) {
      return std::ranges::find(run.part(0).parameters, c.parameter) != run.part(0).parameters.end();
    });
    if (!here || site.readers.empty() || site.free != m.weights.at(site.readers.front()).columns()) continue;
    for (const char* name : {"smoothquant", "awq"}) {
      PartState state;
      state.model = m;
      state.reads = reads;
      state.sites = {site};
      for (const std::string& reader : site.readers) state.formats.emplace(reader, format);
      const std::vector<double> s = plain_scales(state, site, format, name == std::string("smoothquant"));
      parse_method(name).preparations.front()->prepare(preparing_engine(), state, {});
      for (const std::string& reader : site.readers) {
        const std::span<const float> before = m.weights.at(reader).f32(), after = state.model.weights.at(reader).f32();
        for (size_t i = 0; i < before.size(); ++i)
          ASSERT_NEAR(after[i], before[i] * s[i % s.size()], 1e-5 * std::abs(before[i] * s[i % s.size()]))
              << name << ' ' << reader;
      }
      ++sites;
    }
  }
  EXPECT_GE(sites, 4);
}

TEST(Preparation, OutputsLoseLess) {
  for (const arch::Model& m : {model_of("llama"), model_of("mixtral", {{"experts", 4}, {"picked", 2}})})
    for (const char* format : {"int4_g32", "mxfp4"}) {
      const Outcome plain = rounded(m, "gptq", format), scaled = rounded(m, "awq,gptq", format),
                    clipped = rounded(m, "clip", format), aware = rounded(m, "awq", format),
                    smooth = rounded(m, "smoothquant,clip", format);
      EXPECT_LT(total(aware.errors), total(clipped.errors)) << format;
      EXPECT_LT(total(scaled.errors), 1.02 * total(plain.errors)) << format;
      EXPECT_GT(total(smooth.errors), 0) << format;
    }
}

TEST(Preparation, NamesOfMethods) {
  EXPECT_EQ(parse_method("awq").text(), "awq,clip");
  EXPECT_EQ(parse_method("smoothquant").text(), "smoothquant,rtn");
  EXPECT_EQ(parse_method("smoothquant,awq,gptaq").text(), "smoothquant,awq,gptaq");
  EXPECT_EQ(parse_method("hqq").text(), "hqq");
  for (const char* wrong : {"", ",", "gptq,awq", "awq,awq", "awq,,gptq", "best", "gptq,gptq"})
    EXPECT_THROW((void)parse_method(wrong), Error) << wrong;
}

}  // namespace
}  // namespace lumen::model::compress
