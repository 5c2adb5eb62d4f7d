// needs: cpu. Rounding layer by layer: the bytes of rounding at once where nothing is calibrated, the same bytes
// however often a run is ended, and folders of other runs.
#include "model/compress/layers/by_layers.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file/file.h"
#include "model/compress/quantize.h"
#include "tests/model/tiny.h"
#include "tests/run/kept_kernels.h"

namespace lumen::model::compress {
namespace {

run::Engine& by_layers_engine() {
  static run::Engine e(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
  return e;
}

arch::Model wide_model() {
  const arch::FamilyRef family = test_library()->family("llama");
  return initialise(
      family,
      family->config("", {{"vocab", 40}, {"hidden", 64}, {"layers", 2}, {"heads", 2}, {"ffn", 96}, {"context", 16}}),
      1);
}

std::vector<text::TokenId> some_text(int64_t count) {
  std::vector<text::TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back((i * i * 7 + i * 3 + 5) % 40);
  return out;
}

ByLayersOptions options_in(const std::filesystem::path& folder, const std::string& strategy) {
  ByLayersOptions o;
  o.method = parse_method(strategy);
  o.run = {.length = 8, .batch = 2};
  o.numbers.steps = 8;  // of strategies that learn
  o.folder = folder;
  o.source = "test";
  return o;
}

std::map<std::string, FormatRef> formats_of(const arch::Model& m, const std::string& name) {
  QuantizeOptions o;
  o.target = name;
  return choose_formats(m, o, nullptr);
}

std::map<std::string, std::vector<uint8_t>> bytes_of(const arch::Model& m, ByLayers& run) {
  std::map<std::string, std::vector<uint8_t>> out;
  const arch::Model outline = run.outline();
  for (const arch::Parameter& p : m.parameters) {
    const arch::Weight& w = outline.weights.at(p.name);
    const arch::Weight whole = w.bytes.size() > 0 ? w : run.weight(p);
    out[p.name] = {whole.bytes.begin(), whole.bytes.end()};
  }
  return out;
}

TEST(ByLayers, NearestIsThatOfRoundingAtOnce) {
  const arch::Model m = wide_model();
  for (const char* format : {"q8_0", "bf16", "f16", "fp8_tensor", "int8_row"}) {
    const TestFolder folder;
    ByLayers run(by_layers_engine(), m, formats_of(m, format), some_text(5 * 8), options_in(folder / "w", "rtn"));
    ASSERT_TRUE(run.run());
    QuantizeOptions q;
    q.target = format;
    const arch::Model want = quantize(by_layers_engine(), m, q, nullptr);
    const auto got = bytes_of(m, run);
    for (const arch::Parameter& p : m.parameters) {
      const arch::Weight& w = want.weights.at(p.name);
      EXPECT_EQ(got.at(p.name), std::vector<uint8_t>(w.bytes.begin(), w.bytes.end())) << p.name;
    }
    EXPECT_EQ(run.losses().size(), 40u);
    EXPECT_EQ(run.report().size(), formats_of(m, format).size());
    run.remove_folder();
    EXPECT_FALSE(std::filesystem::exists(folder / "w"));
  }
}

TEST(ByLayers, ErrorsOfOutputsFollowWhatIsRead) {
  const arch::Model m = wide_model();
  const TestFolder folder;
  ByLayersOptions o = options_in(folder / "w", "imatrix");
  ByLayers run(by_layers_engine(), m, formats_of(m, "q4_0"), some_text(5 * 8), o);
  ASSERT_TRUE(run.run());
  for (const RoundedTensor& t : run.report()) EXPECT_GT(t.error, 0) << t.name;
}

// Processes that are killed, the first by itself behind its first part, the others at moments spread over the time that
// a whole run took, however fast the machine is; then the run goes on here.
void expect_same_bytes_when_ended(const std::string& strategy, int rounds) {
  const arch::Model m = wide_model();
  const TestFolder folder;
  const auto formats = formats_of(m, "q4_0");
  std::map<std::string, std::vector<uint8_t>> want;
  const auto begin = std::chrono::steady_clock::now();
  {
    ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "whole", strategy));
    ASSERT_TRUE(run.run());
    want = bytes_of(m, run);
  }
  const auto whole = std::chrono::steady_clock::now() - begin;
  int killed = 0;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Threads do not survive a fork: an engine of its own; loops do without those that they have had.
      run::Engine alone(run::Engine::Options{.cache_folder = kept_kernels(), .threads = 1, .machine = nullptr});
      ByLayers run(alone, m, formats, some_text(5 * 8), options_in(folder / "killed", strategy));
      run.run([&](const ByLayersProgress& p) {
        if (round == 0 && p.part >= 1) raise(SIGKILL);
      });
      _exit(0);
    }
    if (round > 0) {
      std::this_thread::sleep_for(whole * round / (2 * rounds));
      kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
  }
  EXPECT_GT(killed, 0);
  ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "killed", strategy));
  ASSERT_TRUE(run.run());
  EXPECT_EQ(bytes_of(m, run), want);
}

TEST(ByLayers, EndedAtAnyMomentItGivesTheSameBytes) {
  expect_same_bytes_when_ended("imatrix", 12);
}
TEST(ByLayers, EndedWhileItLearnsItGivesTheSameBytes) {
  expect_same_bytes_when_ended("autoround", 5);
}

// What layers hand on is nearer to what it was; weights that lie in none are rounded by importance.
TEST(ByLayers, LearnsLayerByLayer) {
  const arch::Model m = wide_model();
  const TestFolder folder;
  for (const char* strategy : {"autoround", "adaround", "omniquant", "block-ap"}) {
    ByLayersOptions o = options_in(folder / strategy, strategy);
    ByLayers run(by_layers_engine(), m, formats_of(m, "int3_g32"), some_text(12 * 8), o);
    ASSERT_TRUE(run.run());
    size_t layers = 0, outside = 0;
    for (const RoundedTensor& t : run.report()) {
      EXPECT_EQ(t.strategy, strategy);
      outside += t.remark == "is in no layer: rounded to nearest by importance";
      if (!t.remark.starts_with("the error of its layer's output is ")) continue;
      ++layers;
      double now = 0, before = 0;
      ASSERT_EQ(std::sscanf(t.remark.c_str(), "the error of its layer's output is %lf, and %lf when rounded to nearest",
                            &now, &before),
                2);
      if (strategy != std::string("omniquant")) {
        EXPECT_LT(now, before) << strategy;
      }
      EXPECT_LE(now, before) << strategy;
    }
    EXPECT_EQ(layers, 2u);
    EXPECT_EQ(outside, formats_of(m, "int3_g32").size() - 14);
  }
}

TEST(ByLayers, FormatsThatAStrategyCannotMove) {
  const arch::FamilyRef family = test_library()->family("llama");
  const arch::Model m = initialise(
      family, family->config("", {{"vocab", 40}, {"hidden", 256}, {"layers", 1}, {"heads", 2}, {"ffn", 256}}), 1);
  const TestFolder folder;
  try {
    ByLayers(by_layers_engine(), m, formats_of(m, "iq2_xs"), some_text(5 * 8), options_in(folder / "w", "autoround"));
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(
        std::string(e.what()).find("cannot be quantized to 'iq2_xs' by 'autoround': each of its codes is for several "
                                   "values, so that no value can be changed alone"),
        std::string::npos)
        << e.what();
  }
}

TEST(ByLayers, StopsBetweenPartsAndGoesOn) {
  const arch::Model m = wide_model();
  const TestFolder folder;
  const auto formats = formats_of(m, "q4_0");
  {
    ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "w", "imatrix"));
    EXPECT_FALSE(run.run({}, [] { return true; }));
  }
  size_t first = 99;
  ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "w", "imatrix"));
  EXPECT_TRUE(run.run([&](const ByLayersProgress& p) { first = std::min(first, p.part); }));
  EXPECT_EQ(first, 1u);
}

TEST(ByLayers, FoldersOfOtherRuns) {
  const arch::Model m = wide_model();
  const TestFolder folder;
  const auto formats = formats_of(m, "q4_0");
  {
    ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "w", "imatrix"));
    ASSERT_TRUE(run.run());
  }
  EXPECT_THROW(ByLayers(by_layers_engine(), m, formats, some_text(6 * 8), options_in(folder / "w", "imatrix")), Error);
  EXPECT_THROW(ByLayers(by_layers_engine(), m, formats, some_text(5 * 8), options_in(folder / "w", "rtn")), Error);
  ByLayersOptions anew = options_in(folder / "w", "imatrix");
  anew.anew = true;
  ByLayers run(by_layers_engine(), m, formats, some_text(5 * 8), anew);
  EXPECT_TRUE(run.run());
}

}  // namespace
}  // namespace lumen::model::compress
