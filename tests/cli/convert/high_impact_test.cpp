// needs: cpu. `lumen quantize --high-impact`: columns in a format of their own, by any strategy, with a budget and
// without, and what models with parts do afterwards.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class HighImpactTest : public TinyModelTest {
 protected:
  static void SetUpTestSuite() {
    TinyModelTest::SetUpTestSuite();
    fs::create_directories(folder_ / "formats");
    std::ofstream(path("formats/four.lum")) << "format four : block 16, doc \"4 bits\" {\n"
                                               "  s : f16\n  q : i4[16]\n"
                                               "  decode(i) = s * q[i]\n"
                                               "  fit(x)    { s = (max(j) abs(x[j])) / 7 }\n"
                                               "  code(v)   = clamp(rint(v * recip(s)), -7, 7)\n}\n";
  }
  // Blocks of 16: parts of 16 and of 16 or 48 columns.
  static Outcome quantize(const std::string& out, std::vector<std::string> more) {
    return lumen({"quantize", path("m/model.gguf"), path(out), "-c", "16", "--chunks", "8", "-b", "4", "--formats",
                  path("formats"), "-q"},
                 more);
  }
};

TEST_F(HighImpactTest, PartsOfOneShareByAnyStrategy) {
  for (const char* strategy : {"", "gptq", "omniquant"}) {
    std::vector<std::string> words = {"four", "--high-impact", "int8_row", "--high-ratio", "0.05"};
    if (*strategy) words.insert(words.end(), {"--strategy", strategy, "--iterations", "2"});
    const Outcome o = quantize("a.gguf", words);
    ASSERT_EQ(o.code, 0) << o.error;
    const Outcome seen = lumen({"inspect", path("a.gguf"), "--tensors", "--formats", path("formats")});
    EXPECT_TRUE(contains(seen.out, "blk.1.attn_q.weight.0")) << seen.out;
    EXPECT_TRUE(contains(seen.out, "blk.1.attn_q.weight.order")) << seen.out;
    EXPECT_TRUE(contains(seen.out, "blk.1.ffn_down.weight.1")) << seen.out;
    EXPECT_FALSE(contains(seen.out, "blk.1.ffn_down.weight.order")) << seen.out;
    EXPECT_TRUE(contains(o.error, "other programs will not find them")) << o.error;
  }
  EXPECT_EQ(lumen({"run", "-m", path("a.gguf"), "-p", "A", "-n", "3", "--formats", path("formats"), "-q"}).code, 0);
  EXPECT_EQ(lumen({"compare", path("m/model.gguf"), path("a.gguf"), "-c", "16", "--chunks", "4", "--formats",
                   path("formats"), "--no-speed"})
                .code,
            0);
  EXPECT_EQ(lumen({"train", "--model", path("a.gguf"), "--lora", "--steps", "2", "--eval-every", "0", "-o", path("l"),
                   "--formats", path("formats"), "-q"})
                .code,
            0);
  EXPECT_EQ(lumen({"run", "-m", path("a.gguf"), "--lora", path("l/adapter.gguf"), "-p", "A", "-n", "3", "--formats",
                   path("formats"), "-q"})
                .code,
            0);
}

TEST_F(HighImpactTest, SharesByName) {
  const Outcome o = quantize("b.gguf", {"four", "--high-impact", "bf16", "--high-ratio", "0,ffn_down=0.4"});
  ASSERT_EQ(o.code, 0) << o.error;
  const Outcome seen = lumen({"inspect", path("b.gguf"), "--tensors", "--formats", path("formats")});
  EXPECT_TRUE(contains(seen.out, "blk.0.ffn_down.weight.1")) << seen.out;
  EXPECT_FALSE(contains(seen.out, "attn_q.weight.0")) << seen.out;
}

TEST_F(HighImpactTest, SharesAreChosenUnderABudget) {
  const std::vector<std::string> words = {"--budget", "6.4bpw",       "--candidates", "four",   "--high-impact",
                                          "int8_row", "--high-ratio", "0.05,0.5",     "--json", path("c.json")};
  const Outcome o = quantize("c.gguf", words);
  ASSERT_EQ(o.code, 0) << o.error;
  const auto all = nlohmann::json::parse(read("c.json"));
  EXPECT_LE(all["result"]["bits"].get<double>(), 6.4);
  EXPECT_TRUE(contains(o.out, "int8_row in 16 columns, four")) << o.out;
  // The same again, in another folder, with another number of threads: the same bytes.
  std::vector<std::string> again = words;
  again.insert(again.end(), {"--work-folder", path("w"), "-t", "1"});
  ASSERT_EQ(quantize("d.gguf", again).code, 0);
  EXPECT_EQ(read("c.gguf"), read("d.gguf"));
  EXPECT_FALSE(fs::exists(path("w")));
}

TEST_F(HighImpactTest, DryRunsComputeNothing) {
  EXPECT_EQ(quantize("none.gguf", {"four", "--high-impact", "int8_row", "--dry-run"}).code, 0);
  EXPECT_EQ(
      quantize("none.gguf", {"--budget", "9bpw", "--candidates", "four", "--high-impact", "int8_row", "--dry-run"})
          .code,
      0);
  EXPECT_FALSE(fs::exists(path("none.gguf")));
}

TEST_F(HighImpactTest, Mistakes) {
  EXPECT_EQ(quantize("x.gguf", {"four", "--high-ratio", "0.1"}).code, 2);
  EXPECT_EQ(quantize("x.gguf", {"four", "--high-impact", "no_such_format"}).code, 2);
  for (const char* wrong : {"1", "-0.1", "x", "nan", "(=0.1", "0.1,0.2"})
    EXPECT_EQ(quantize("x.gguf", {"four", "--high-impact", "int8_row", "--high-ratio", wrong}).code, 2) << wrong;
  EXPECT_EQ(quantize("x.gguf", {"four", "--high-impact", "int8_row,bf16"}).code, 2);
  EXPECT_EQ(quantize("x.gguf", {"--budget", "9bpw", "--high-impact", "bf16", "--high-ratio", "a=0.1"}).code, 2);
  EXPECT_EQ(quantize("x.gguf", {"--budget", "12ms", "--candidates", "four", "--high-impact", "bf16"}).code, 2);
  // No room for columns: blocks of 64 in 64 columns and in 32.
  EXPECT_EQ(quantize("x.gguf", {"four", "--high-impact", "int8_row", "--high-ratio", "0"}).code, 1);
  ASSERT_EQ(quantize("e.gguf", {"f32", "--high-impact", "int8_row"}).code, 1);
  // Packed folders cannot say it; what has parts is not cut again.
  ASSERT_EQ(quantize("p.gguf", {"four", "--high-impact", "int8_row"}).code, 0);
  EXPECT_EQ(lumen({"quantize", path("p.gguf"), path("y.gguf"), "four", "--allow-requantize", "--high-impact", "bf16",
                   "-c", "16", "--chunks", "4", "--formats", path("formats")})
                .code,
            1);
  EXPECT_FALSE(fs::exists(path("x.gguf")));
}

}  // namespace
}  // namespace lumen::cli
