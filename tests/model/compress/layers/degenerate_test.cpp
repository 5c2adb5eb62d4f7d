// needs: cpu. Every strategy beside weights that it can do nothing for: routers and kept tensors in floats, channels
// that are always 0, experts that no row reaches, and sums that are not finite. They are rounded to nearest, by name,
// and the others are what they would have been.
#include <gtest/gtest.h>

#include <cmath>

#include "model/arch/bytes.h"
#include "model/compress/layers/by_layers.h"
#include "model/compress/quantize.h"
#include "model/compress/strategy/strategy.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& degenerate_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

void change(arch::Model& m, const std::string& name,
            const std::function<float(int64_t row, int64_t column, float)>& to) {
  arch::Weight& w = m.weights.at(name);
  std::vector<float> values(w.f32().begin(), w.f32().end());
  for (int64_t i = 0; i < std::ssize(values); ++i) values[i] = to(i / w.columns(), i % w.columns(), values[i]);
  w = arch::f32_weight(w.type.shape, values);
}

// An error that passes ends the capture, without which the next one would abort the process.
class CapturedErrors {
 public:
  CapturedErrors() { testing::internal::CaptureStderr(); }
  ~CapturedErrors() {
    if (!taken_) testing::internal::GetCapturedStderr();
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;
  std::string take() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool taken_ = false;
};

struct Rounded {
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, RoundedTensor> lines;  // by GGUF name
  std::string warnings;
};

Rounded rounded(const arch::Model& m, const std::string& strategy, const std::string& format,
                const std::string& kept = "") {
  const TestFolder folder;
  QuantizeOptions q;
  q.target = format;
  if (!kept.empty()) q.tensor_types.emplace_back(kept, "f16");
  std::vector<text::TokenId> text;
  for (int64_t i = 0; i < 24; ++i) text.push_back((i * i * 7 + i * 3 + 5) % 40);
  ByLayersOptions o;
  o.method = parse_method(strategy);
  o.run = {.length = 8, .batch = 2};
  o.numbers.steps = 4;
  o.folder = folder / "work";
  o.source = "test";
  Rounded out;
  CapturedErrors capture;
  ByLayers run(degenerate_engine(), m, choose_formats(m, q, nullptr), text, o);
  EXPECT_TRUE(run.run());
  out.warnings = capture.take();
  for (const RoundedTensor& line : run.report()) {
    out.lines.emplace(line.name, line);
    for (const arch::Parameter& p : m.parameters)
      if (p.gguf == line.name) out.values[p.name] = values_of(degenerate_engine(), run.weight(p));
  }
  return out;
}

double largest(std::span<const float> x) {
  double most = 0;
  for (const float v : x) most = std::max<double>(most, std::abs(v));
  return most;
}

// The squared error of w's elements that are picked.
double lost(std::span<const float> rounded, std::span<const float> w, const std::function<bool(int64_t)>& picks) {
  double sum = 0;
  for (int64_t i = 0; i < std::ssize(w); ++i)
    if (picks(i)) sum += (double{rounded[i]} - w[i]) * (double{rounded[i]} - w[i]);
  return sum;
}

// A search of scales by importance, all of it alike, finds other scales than the plain one: no worse ones.
constexpr double kAlike = 1.05;

std::vector<std::string> all_strategies() {
  std::vector<std::string> out;
  for (const Strategy* s : strategies()) out.emplace_back(s->name());
  return out;
}

std::string name_of_case(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& c : out)
    if (c == '-') c = '_';
  return out;
}

class Degenerate : public testing::TestWithParam<std::string> {};

// The router is all zeros, so that the first two experts are always chosen: no row reaches the other two.
TEST_P(Degenerate, RoutersStayAndExpertsThatNoRowReachesGoToNearest) {
  const arch::FamilyRef family = test_library()->family("mixtral");
  arch::Model m = initialise(family,
                             family->config("", {{"vocab", 40},
                                                 {"hidden", 32},
                                                 {"layers", 1},
                                                 {"heads", 2},
                                                 {"kv_heads", 1},
                                                 {"ffn", 32},
                                                 {"experts", 4},
                                                 {"picked", 2},
                                                 {"context", 16}}),
                             1);
  change(m, "layers.0.router", [](int64_t, int64_t, float) { return 0.0F; });
  const Rounded got = rounded(m, GetParam(), "q4_0"), nearest = rounded(m, "rtn", "q4_0");
  const auto router = m.weights.at("layers.0.router").f32();
  EXPECT_EQ(got.values.at("layers.0.router"), std::vector<float>(router.begin(), router.end()));
  for (const char* name : {"layers.0.gates", "layers.0.ups", "layers.0.downs"}) {
    const std::vector<float>&a = got.values.at(name), &b = nearest.values.at(name);
    const int64_t half = std::ssize(a) / 2;
    EXPECT_GT(largest(std::span(a).subspan(half)), 0) << name;
    if (GetParam() == "hqq") continue;  // needs no text: no expert is different
    if (find_strategy(GetParam()).observes().squares) {
      const auto second = [&](int64_t i) { return i >= half; };
      const auto w = m.weights.at(name).f32();
      EXPECT_LE(lost(a, w, second), kAlike * lost(b, w, second)) << name;
      continue;
    }
    EXPECT_EQ(std::vector<float>(a.begin() + half, a.end()), std::vector<float>(b.begin() + half, b.end())) << name;
  }
}

// Channels 0 to 31, a whole block of the format, are 0 in all that attention reads; one matrix is kept in f16.
TEST_P(Degenerate, KeptTensorsAndDeadChannels) {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 1}, {"heads", 2}, {"ffn", 64}, {"context", 16}}),
      1);
  change(m, "layers.0.attn_norm", [](int64_t, int64_t c, float v) { return c < 32 ? 0.0F : v; });
  const Rounded got = rounded(m, GetParam(), "q4_0", "attn_v"), nearest = rounded(m, "rtn", "q4_0", "attn_v");
  // Error feedback rounds to any format, to f16 as well: then the error below says that it is f16.
  if (find_strategy(GetParam()).by_blocks()) {
    EXPECT_EQ(got.values.at("layers.0.wv"), nearest.values.at("layers.0.wv"));
  }
  EXPECT_EQ(got.lines.at("blk.0.attn_v.weight").format, "f16");
  EXPECT_LT(got.lines.at("blk.0.attn_v.weight").error, 1e-3);
  const std::vector<float>&a = got.values.at("layers.0.wq"), &b = nearest.values.at("layers.0.wq");
  const auto dead = [](int64_t i) { return i % 64 < 32; };
  const auto w = m.weights.at("layers.0.wq").f32();
  if (GetParam() != "hqq") {
    EXPECT_LE(lost(a, w, dead), kAlike * lost(b, w, dead));
  }
  EXPECT_GT(largest(std::span(a).first(32)), 0);
}

// All that attention reads is 0: its matrices go to nearest and are named, the rest of the layer is rounded as ever.
TEST_P(Degenerate, ReadingNothingButZerosSpoilsNothing) {
  const arch::FamilyRef family = test_library()->family("llama");
  arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 32}, {"layers", 1}, {"heads", 2}, {"ffn", 64}, {"context", 16}}),
      1);
  change(m, "layers.0.attn_norm", [](int64_t, int64_t, float) { return 0.0F; });
  const Rounded got = rounded(m, GetParam(), "q4_0"), nearest = rounded(m, "rtn", "q4_0");
  const Strategy& strategy = find_strategy(GetParam());
  if (strategy.observes().gram || strategy.observes().squares) {
    EXPECT_EQ(got.values.at("layers.0.wk"), nearest.values.at("layers.0.wk"));
    EXPECT_NE(got.lines.at("blk.0.attn_k.weight").remark.find("are all zero"), std::string::npos);
    EXPECT_NE(got.warnings.find("'blk.0.attn_k.weight' is rounded to nearest"), std::string::npos) << got.warnings;
  }
  EXPECT_GT(largest(got.values.at("layers.0.gate")), 0);
}

// What the second layer's last matrix reads is infinite: it and what follows goes to nearest, the first layer does not.
TEST_P(Degenerate, SumsThatAreNotFiniteSpoilNothingBeforeThem) {
  const arch::FamilyRef family = test_library()->family("llama");
  const auto made = [&](bool broken) {
    arch::Model m = initialise(
        family,
        family->config("", {{"vocab", 40}, {"hidden", 32}, {"layers", 2}, {"heads", 2}, {"ffn", 32}, {"context", 16}}),
        1);
    if (broken)
      for (const char* name : {"layers.1.up", "layers.1.gate"})
        change(m, name, [](int64_t, int64_t, float v) { return v * 1e25F; });
    return m;
  };
  const Rounded got = rounded(made(true), GetParam(), "q8_0"), sound = rounded(made(false), GetParam(), "q8_0");
  for (const char* name : {"layers.0.wq", "layers.0.down"})
    EXPECT_EQ(got.values.at(name), sound.values.at(name)) << name;
  const Strategy& strategy = find_strategy(GetParam());
  if (!strategy.observes().gram && !strategy.observes().squares) return;
  EXPECT_NE(got.lines.at("blk.1.ffn_down.weight").remark.find("not finite"), std::string::npos)
      << got.lines.at("blk.1.ffn_down.weight").remark;
  EXPECT_NE(got.warnings.find("'blk.1.ffn_down.weight' is rounded to nearest"), std::string::npos) << got.warnings;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Degenerate, testing::ValuesIn(all_strategies()), name_of_case);

// Where nothing is left to learn, a strategy is refused as before.
TEST(DegenerateFloats, AloneAreRefused) {
  const arch::FamilyRef family = test_library()->family("llama");
  const arch::Model m = initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 32}, {"layers", 1}, {"heads", 2}, {"ffn", 32}, {"context", 16}}),
      1);
  EXPECT_THROW(rounded(m, "autoround", "f16"), Error);
}

}  // namespace
}  // namespace lumen::model::compress
