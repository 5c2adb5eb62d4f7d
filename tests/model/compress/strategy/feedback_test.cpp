// needs: cpu. Strategies with error feedback on the layers of a model: what outputs lose, stacks of experts, refusals.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& feedback_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model small_model(const std::string& family, std::map<std::string, double> more = {}) {
  const arch::FamilyRef f = test_library()->family(family);
  std::map<std::string, double> sizes{{"vocab", 40},   {"hidden", 64}, {"layers", 2},  {"heads", 2},
                                      {"kv_heads", 2}, {"ffn", 128},   {"context", 32}};
  sizes.merge(more);
  return initialise(f, f->config("", {sizes.begin(), sizes.end()}), 1);
}

std::vector<text::TokenId> walk(int64_t count) {
  std::vector<text::TokenId> out;
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    out.push_back(state >> 16 & 1 ? (i * 7 + 3) % 40 : (state >> 20) % 40);
  }
  return out;
}

// Errors of outputs by name.
std::map<std::string, double> errors_of(const arch::Model& m, const std::string& strategy, const std::string& format,
                                        StrategyOptions numbers = {}) {
  const TestFolder folder;
  ByLayersOptions o;
  o.method = parse_method(strategy);
  o.numbers = numbers;
  o.run = {.length = 16, .batch = 4};
  o.folder = folder / "w";
  o.source = "test";
  QuantizeOptions q;
  q.target = format;
  ByLayers run(feedback_engine(), m, choose_formats(m, q, nullptr), walk(40 * 16), o);
  EXPECT_TRUE(run.run());
  std::map<std::string, double> out;
  for (const RoundedTensor& t : run.report()) {
    out[t.name] = t.output_error;
    const arch::Parameter* p = nullptr;
    for (const arch::Parameter& each : m.parameters)
      if (each.gguf == t.name || each.name == t.name) p = &each;
    EXPECT_NE(p, nullptr);
    const std::vector<float> values = values_of(feedback_engine(), run.weight(*p));
    double lost = 0, all = 0;
    const std::vector<float> before = values_of(feedback_engine(), m.weights.at(p->name));
    for (size_t k = 0; k < values.size(); ++k) {
      lost += (values[k] - before[k]) * (values[k] - before[k]);
      all += before[k] * before[k];
    }
    EXPECT_NEAR(t.error, std::sqrt(lost / all), 1e-6) << t.name;  // the file holds what was reported
  }
  return out;
}

double sum(const std::map<std::string, double>& errors) {
  double all = 0;
  for (const auto& [name, e] : errors) all += std::max(e, 0.0);
  return all;
}

TEST(Feedback, OutputsLoseLess) {
  const arch::Model m = small_model("llama");
  for (const char* format : {"int4_g32", "q4_0", "nvfp4", "int3_g32_asym", "mxfp4"}) {
    const auto plain = errors_of(m, "gptq", format, {.damping = 1}), fed = errors_of(m, "gptq", format);
    StrategyOptions ordered;
    ordered.act_order = true;
    const auto by_order = errors_of(m, "gptq", format, ordered), answering = errors_of(m, "gptaq", format);
    EXPECT_LT(sum(fed), sum(plain)) << format;
    EXPECT_LT(sum(by_order), sum(plain)) << format;
    EXPECT_GT(sum(answering), 0) << format;
  }
}

TEST(Feedback, ExpertsByTheRowsThatReachThem) {
  const arch::Model m = small_model("mixtral", {{"experts", 4}, {"picked", 2}});
  bool stacked = false;
  for (const arch::Parameter& p : m.parameters) stacked |= p.shape.size() == 3;
  ASSERT_TRUE(stacked);
  for (const char* format : {"int4_g32", "fp8_tensor"}) {
    const auto fed = errors_of(m, "gptq", format), damped = errors_of(m, "gptq", format, {.damping = 1});
    EXPECT_LT(sum(fed), 1.02 * sum(damped)) << format;
  }
}

TEST(Feedback, OrdersThatCodesDoNotAllowAreRefused) {
  StrategyOptions ordered;
  ordered.act_order = true;
  const FormatRef f = test_library()->formats().get("tq1_0");
  EXPECT_TRUE(find_strategy("gptq").refuses(*f, ordered));
  EXPECT_FALSE(find_strategy("gptq").refuses(*f, {}));
  EXPECT_THROW((void)find_strategy("none"), Error);
}

}  // namespace
}  // namespace lumen::model::compress
