// needs: cpu. `lumen quantize --experts`: classes of experts by texts, in files, with strategies, and what runs them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

// A mixture that was trained for a few steps on two kinds of text.
class ExpertsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const fs::path place = fs::temp_directory_path();
    setenv("LUMEN_CACHE", (place / "lumen-test-cache").c_str(), 1);
    std::string name = (place / "lumen-experts-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    fs::create_directories(folder_ / "models");
    fs::create_directories(folder_ / "formats");
    std::ofstream(path("models/tiny.lum"))
        << "model tiny_mixture(cfg) : extends qwen3_moe, gguf \"tiny_mixture\" {\n"
           "  size tiny { vocab = 65; hidden = 32; layers = 2; heads = 2; kv_heads = 1; head_dim = 16; ffn = 64; "
           "experts = 8; picked = 2; expert_ffn = 32; context = 32; eps = 1e-5 }\n}\n";
    for (const auto& [bits, most] : {std::pair(4, 7), std::pair(2, 1)})
      std::ofstream(path(fmt::format("formats/i{}.lum", bits))) << fmt::format(
          "format i{0} : block 16, doc \"{0} bits\" {{\n  s : f16\n  q : i{0}[16]\n  decode(i) = s * q[i]\n"
          "  fit(x)    {{ s = (max(j) abs(x[j])) / {1} }}\n"
          "  code(v)   = clamp(rint(v * recip(s)), -{1}, {1})\n}}\n",
          bits, most);
    std::ofstream digits(path("digits.txt")), words(path("words.txt")), both(path("both.txt"));
    for (int i = 0; i < 400; ++i) {
      const std::string line = fmt::format("{} {} {}\n", i * 7919, i * i, 99 * i + 5),
                        other = fmt::format("the {} of a {}\n", i % 3 ? "night" : "king", i % 5 ? "crown" : "sea");
      digits << line;
      words << other;
      both << line << other;
    }
    digits.close();
    words.close();
    both.close();
    const Outcome o = run({"train", "--family", "tiny_mixture", "--shape", "tiny", "--data", path("both.txt"),
                           "--steps", "30", "--lr", "5e-3", "--eval-every", "0", "-o", path("m"), "-q"});
    ASSERT_EQ(o.code, 0) << o.error;
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static Outcome run(std::vector<std::string> words, const std::vector<std::string>& more = {}) {
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--models", path("models"), "--formats", path("formats")});
    return cli::lumen(words);
  }
  static Outcome quantize(const std::string& out, const std::vector<std::string>& more) {
    return run({"quantize", path("m/model.gguf"), path(out), "int8_row", "-c", "16", "--chunks", "16", "-b", "4", "-q"},
               more);
  }
  static nlohmann::json report(const std::string& name) {
    std::ifstream in(path(name));
    return nlohmann::json::parse(in);
  }
  static inline fs::path folder_;
};

TEST_F(ExpertsTest, ClassesByAnyStrategy) {
  for (const char* strategy : {"", "rtn", "imatrix", "gptq"}) {
    std::vector<std::string> words = {"--experts",        "i4,i2",       "--expert-bits",   "4",      "-f",
                                      path("digits.txt"), "-f",          path("words.txt"), "--json", path("a.json"),
                                      "--html",           path("a.html")};
    if (*strategy) words.insert(words.end(), {"--strategy", strategy});
    const Outcome o = quantize("a.gguf", words);
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_NE(o.out.find("in i4"), std::string::npos) << o.out;
    const Outcome seen = run({"inspect", path("a.gguf"), "--tensors"});
    EXPECT_NE(seen.out.find("blk.1.ffn_gate_exps.weight.0"), std::string::npos) << seen.out;
    EXPECT_EQ(seen.out.find(".order"), std::string::npos) << seen.out;
    const Outcome compared = run({"compare", path("m/model.gguf"), path("a.gguf"), "-f", path("words.txt"), "-c", "16",
                                  "--chunks", "4", "--no-speed"});
    EXPECT_EQ(compared.code, 0) << compared.error;
    const nlohmann::json all = report("a.json");
    ASSERT_EQ(all["experts"].size(), 16U);
    double bits = 0;
    for (const auto& e : all["experts"]) {
      bits += e["bits"].get<double>() / 16;
      EXPECT_EQ(e["shares"].size(), 2U);
      EXPECT_NEAR(e["share"].get<double>(), (e["shares"][0].get<double>() + e["shares"][1].get<double>()) / 2, 1e-9);
    }
    EXPECT_LE(bits, 4);
    EXPECT_GT(bits, 3);
    EXPECT_TRUE(fs::exists(path("a.html")));
  }
  EXPECT_EQ(run({"run", "-m", path("a.gguf"), "-p", "the", "-n", "5", "-q"}).code, 0);
  EXPECT_EQ(run({"train", "--model", path("a.gguf"), "--lora", "--steps", "2", "--eval-every", "0", "--data",
                 path("both.txt"), "-o", path("l"), "-q"})
                .code,
            0);
  EXPECT_EQ(run({"run", "-m", path("a.gguf"), "--lora", path("l/adapter.gguf"), "-p", "the", "-n", "3", "-q"}).code, 0);
}

// The order of the experts, and the parts, leave the model as it was.
TEST_F(ExpertsTest, PlainFormatsComputeTheSame) {
  ASSERT_EQ(run({"quantize", path("m/model.gguf"), path("f.gguf"), "f32", "--experts", "f32,bf16", "--expert-bits",
                 "24", "-c", "16", "--chunks", "16", "-f", path("digits.txt"), "-q"})
                .code,
            0);
  const auto words = [](const std::string& file) {
    return run({"run", "-m", path(file), "-p", "the night", "-n", "12", "--temp", "0", "-q"}).out;
  };
  EXPECT_EQ(words("f.gguf"), words("m/model.gguf"));
}

TEST_F(ExpertsTest, ClassesFollowTheTexts) {
  std::vector<nlohmann::json> seen;
  for (const char* text : {"digits.txt", "words.txt"}) {
    const Outcome o =
        quantize("t.gguf", {"--experts", "i4,i2", "--expert-bits", "4", "-f", path(text), "--json", path("t.json")});
    ASSERT_EQ(o.code, 0) << o.error;
    seen.push_back(report("t.json")["experts"]);
  }
  int differ = 0;
  for (size_t i = 0; i < seen[0].size(); ++i) differ += seen[0][i]["format"] != seen[1][i]["format"];
  EXPECT_GT(differ, 0);
}

TEST_F(ExpertsTest, Mistakes) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--expert-bits", "3"},
                                             {"--experts", "no_such_format"},
                                             {"--experts", "i2,i4"},
                                             {"--experts", "i4,i4"},
                                             {"--experts", "i4,i2", "--expert-bits", "2"},
                                             {"--experts", "i4,i2", "--dry-run"},
                                             {"--experts", "i4,i2", "--high-impact", "bf16"},
                                             {"--experts", "i4,i2", "--output-format", "gptq"}})
    EXPECT_EQ(quantize("x.gguf", wrong).code, 2) << fmt::format("{}", fmt::join(wrong, " "));
  std::ofstream(path("short.txt")) << "a";
  EXPECT_EQ(quantize("x.gguf", {"--experts", "i4,i2", "-f", path("digits.txt"), "-f", path("short.txt")}).code, 1);
  ASSERT_EQ(quantize("p.gguf", {"--experts", "i4,i2", "--expert-bits", "4", "-f", path("digits.txt")}).code, 0);
  EXPECT_EQ(run({"quantize", path("p.gguf"), path("x.gguf"), "i4", "--allow-requantize", "--experts", "i4,i2", "-c",
                 "16", "--chunks", "4", "-f", path("digits.txt")})
                .code,
            1);
  EXPECT_FALSE(fs::exists(path("x.gguf")));
}

}  // namespace
}  // namespace lumen::cli
