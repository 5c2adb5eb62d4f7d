#include "cli/convert/measured_result/measured_result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "number/library/library.h"
#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

class MeasuredResultTest : public TinyModelTest {
 protected:
  // Other tests of commands run with this variable.
  void SetUp() override {
    if (const char* const value = std::getenv(kVariable)) before_ = value;
    unsetenv(kVariable);
  }
  void TearDown() override {
    if (!before_.empty()) setenv(kVariable, before_.c_str(), 1);
  }
  static Outcome quantize(const std::string& out, const std::vector<std::string>& more) {
    return lumen({"quantize", path("m/model.gguf"), path(out)}, more);
  }
  static constexpr const char* kVariable = "LUMEN_NO_MEASURE";
  static nlohmann::json report(const std::string& name) { return nlohmann::json::parse(read(name)); }

 private:
  std::string before_;
};

TEST_F(MeasuredResultTest, EveryResultIsComparedWithTheModelBefore) {
  double coarse = 0;
  for (const char* format : {"int2_g32", "q8_0"}) {
    const Outcome o = quantize("a.gguf", {format, "--json", path("a.json")});
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.out, "KL divergence ")) << o.out;
    EXPECT_TRUE(contains(o.out, "same likeliest token ")) << o.out;
    EXPECT_TRUE(contains(o.error, "of the built-in text")) << o.error;
    const auto all = report("a.json");
    const double kl = all["result"]["kl"].get<double>();
    EXPECT_GT(kl, 0);
    EXPECT_GT(all["base"]["ppl"].get<double>(), 1);
    if (coarse == 0)
      coarse = kl;
    else
      EXPECT_LT(kl, coarse / 10);
  }
  // The figures are those of `lumen compare` on the same windows.
  const Outcome same = lumen({"compare", path("m/model.gguf"), path("a.gguf"), "-c", "32", "--chunks", "8", "--full",
                              "--no-speed", "--json", path("c.json")});
  ASSERT_EQ(same.code, 0) << same.error;
  const auto a = report("a.json"), c = report("c.json");
  EXPECT_NEAR(a["result"]["kl"].get<double>(), c["points"][0]["kl"].get<double>(), 1e-9);
}

TEST_F(MeasuredResultTest, TheFlagLeavesItOut) {
  const Outcome o = quantize("b.gguf", {"q8_0", "--no-measure", "--json", path("b.json")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_FALSE(contains(o.out, "KL divergence")) << o.out;
  EXPECT_FALSE(report("b.json")["result"].contains("kl"));
}

TEST_F(MeasuredResultTest, TextOfAnUncalibratedResultIsTheGivenOne) {
  std::ofstream(path("own.txt")) << std::string(4000, 'a');
  const Outcome o = quantize("c.gguf", {"q8_0", "-f", path("own.txt")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "tokens of " + path("own.txt"))) << o.error;
  std::ofstream(path("short.txt")) << "a";
  const Outcome few = quantize("c.gguf", {"q8_0", "-f", path("short.txt")});
  EXPECT_EQ(few.code, 0) << few.error;
  EXPECT_TRUE(contains(few.error, "not measured: ")) << few.error;
}

TEST_F(MeasuredResultTest, StrategiesAreMeasuredOnTextThatTheyDidNotRead) {
  const Outcome more = quantize("d.gguf", {"int4_g32", "--strategy", "gptq", "-c", "32", "--chunks", "4"});
  ASSERT_EQ(more.code, 0) << more.error;
  EXPECT_TRUE(contains(more.error, "after the windows used for calibration")) << more.error;
  EXPECT_TRUE(contains(more.out, "KL divergence ")) << more.out;
}

// The vocabulary of a model may lack characters of the built-in text.
TEST_F(MeasuredResultTest, WhatCannotBeReadIsNotMeasured) {
  std::ofstream(path("ab.txt")) << [] {
    std::string text;
    for (int i = 0; i < 4000; ++i) text += i % 3 == 0 ? 'a' : 'b';
    return text;
  }();
  const Outcome made = lumen({"train", "--shape", "tiny", "--data", path("ab.txt"), "--steps", "1", "--eval-every", "0",
                              "-o", path("ab"), "-q"});
  ASSERT_EQ(made.code, 0) << made.error;
  const Outcome o = lumen({"quantize", path("ab/model.gguf"), path("ab.gguf"), "q8_0"});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "not measured: ")) << o.error;
  EXPECT_TRUE(std::filesystem::exists(path("ab.gguf")));
}

TEST_F(MeasuredResultTest, FilesInPartsAndFoldersAreMeasured) {
  const Outcome parts = quantize("e.gguf", {"q8_0", "--split-max-size", "20K"});
  ASSERT_EQ(parts.code, 0) << parts.error;
  EXPECT_FALSE(std::filesystem::exists(path("e.gguf")));
  EXPECT_TRUE(contains(parts.out, "KL divergence ")) << parts.out;
  const Outcome folder = quantize("f", {"bf16", "--output-format", "hf"});
  ASSERT_EQ(folder.code, 0) << folder.error;
  EXPECT_TRUE(contains(folder.out, "KL divergence ")) << folder.out;
}

std::string warning_of(double kl, double same_top, double bits, bool is_calibrated) {
  model::report::MeasuredQuality q;
  q.kl = kl;
  q.same_top = same_top;
  testing::internal::CaptureStderr();
  warn_if_broken(q, bits, is_calibrated, FormatLibrary::builtin());
  return testing::internal::GetCapturedStderr();
}

TEST(BrokenResult, IsNamedWithTheNextBetterChoice) {
  EXPECT_EQ(warning_of(0.99, 0.51, 3.4, false), "");
  const std::string far = warning_of(1.01, 0.9, 3.4, false);
  EXPECT_TRUE(contains(far, "broken")) << far;
  EXPECT_TRUE(contains(far, "1.01 nats")) << far;
  EXPECT_TRUE(contains(far, "--strategy")) << far;
  EXPECT_FALSE(contains(warning_of(1.01, 0.9, 3.4, true), "--strategy"));
  EXPECT_TRUE(contains(warning_of(0.2, 0.49, 3.4, true), "49 %"));
  EXPECT_TRUE(contains(warning_of(std::numeric_limits<double>::quiet_NaN(), 0.9, 3.4, true), "broken"));
  // A format of more bits exists below 16 bits, and none of these is offered above.
  EXPECT_TRUE(contains(warning_of(2, 0.1, 3.4, true), "more bits, such as"));
  EXPECT_TRUE(contains(warning_of(2, 0.1, 64, true), "keep the weights"));
}

TEST(HeldOutText, IsWhatCalibrationDoesNotUse) {
  LayerTextFlags read;
  read.run.length = 10;
  std::vector<model::text::TokenId> text(165);
  std::iota(text.begin(), text.end(), 0);
  const ResultText last = held_out(read, text);
  ASSERT_EQ(last.tokens.size(), 10U);
  EXPECT_EQ(last.tokens.front(), 150);
  EXPECT_EQ(text.size(), 150U);
  std::vector<model::text::TokenId> few(70);
  EXPECT_TRUE(held_out(read, few).tokens.empty());
  EXPECT_EQ(few.size(), 70U);
  read.spare = {1, 2, 3};
  std::vector<model::text::TokenId> all(160);
  EXPECT_EQ(held_out(read, all).tokens, read.spare);
  EXPECT_EQ(all.size(), 160U);
}

}  // namespace
}  // namespace lumen::cli
