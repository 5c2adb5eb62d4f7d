// needs: none. `lumen quantize --budget`: sizes are kept to, documents say what was chosen, a run that was ended goes
// on, and what is no budget is refused before anything is read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class BudgetTest : public TinyModelTest {
 protected:
  static Outcome quantize(const std::string& out, const std::string& budget, std::vector<std::string> more = {}) {
    return lumen({"quantize", path("m/model.gguf"), path(out), "--budget", budget, "-c", "16", "--chunks", "20", "-b",
                  "4", "--candidates", "int3_g32,int4_g32,q4_0,q8_0,bf16"},
                 more);
  }
};

TEST_F(BudgetTest, BytesAreKeptAndQualityFollows) {
  double before = 1e9;
  for (const char* bits : {"5.0bpw", "6.5bpw", "9bpw"}) {
    const Outcome o = quantize("a.gguf", bits, {"--json", path("a.json"), "--html", path("a.html")});
    ASSERT_EQ(o.code, 0) << o.error;
    const auto all = nlohmann::json::parse(read("a.json"));
    EXPECT_LE(all["result"]["bits"].get<double>(), std::atof(bits));
    EXPECT_LT(all["predicted"].get<double>(), before);
    before = all["predicted"];
    EXPECT_TRUE(all["proved"].get<bool>());
    EXPECT_EQ(all["tensors"].size(), 16U);
    EXPECT_GT(all["result"]["kl"].get<double>(), 0);
    EXPECT_TRUE(contains(read("a.html"), "blk.1.ffn_down.weight"));
    EXPECT_TRUE(contains(o.out, "predicted choices")) << o.out;
    EXPECT_FALSE(fs::exists(path("a.gguf.work")));
  }
  EXPECT_EQ(lumen({"run", "-m", path("a.gguf"), "-p", "A", "-n", "3", "-q"}).code, 0);
}

// What is rounded without a choice has a report, too.
TEST_F(BudgetTest, RoundingAloneIsReported) {
  for (const bool learns : {false, true}) {
    std::vector<std::string> words = {"quantize", path("m/model.gguf"), path("e.gguf"), "int4_g32",
                                      "--json",   path("e.json"),       "--html",       path("e.html")};
    if (learns) words.insert(words.end(), {"--strategy", "gptq", "-c", "16", "--chunks", "4"});
    const Outcome o = lumen(words);
    ASSERT_EQ(o.code, 0) << o.error;
    const auto all = nlohmann::json::parse(read("e.json"));
    EXPECT_EQ(all["tensors"].size(), 16U);
    EXPECT_GT(all["tensors"][3]["error"].get<double>(), 0);
    EXPECT_LT(all["result"]["bits"].get<double>(), all["base"]["bits"].get<double>());
    // The page draws the weights before and after from these.
    const auto has_histogram = [](const auto& tensor) { return tensor.contains("histogram"); };
    EXPECT_EQ(std::any_of(all["tensors"].begin(), all["tensors"].end(), has_histogram), learns);
  }
}

// The report has what was not chosen, too, and what became of the numbers.
TEST_F(BudgetTest, OthersAreMeasuredBeside) {
  const Outcome o =
      quantize("c.gguf", "6.5bpw", {"--json", path("c.json"), "--beside", "int4_g32,q8_0", "--html", path("c.html")});
  ASSERT_EQ(o.code, 0) << o.error;
  const auto all = nlohmann::json::parse(read("c.json"));
  ASSERT_EQ(all["points"].size(), 3U);
  EXPECT_TRUE(all["points"][0]["chosen"].get<bool>());
  EXPECT_EQ(all["points"][1]["label"], "int4_g32");
  EXPECT_EQ(all["points"][1]["strategy"], "imatrix");
  EXPECT_LT(all["points"][1]["bits"].get<double>(), all["points"][2]["bits"].get<double>());
  EXPECT_GT(all["points"][1]["kl"].get<double>(), all["points"][2]["kl"].get<double>());
  size_t drawn = 0;
  for (const auto& tensor : all["tensors"]) drawn += tensor.contains("histogram");
  EXPECT_EQ(drawn, 8U);
  EXPECT_TRUE(contains(read("c.html"), "Weights before and after"));
  EXPECT_EQ(quantize("d.gguf", "6.5bpw", {"--compare-formats", "q8_0"}).code, 2);
  EXPECT_EQ(quantize("d.gguf", "6.5bpw", {"--compare-formats", "q80", "--json", path("d.json")}).code, 2);
  EXPECT_FALSE(fs::exists(path("d.gguf")));
}

TEST_F(BudgetTest, QualityIsMeasured) {
  const Outcome o = quantize("b.gguf", "kl=0.0005", {"--json", path("b.json")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_LE(nlohmann::json::parse(read("b.json"))["result"]["kl"].get<double>(), 0.0005);
}

TEST_F(BudgetTest, TimeIsMeasuredToo) {
  const Outcome o = quantize("t.gguf", "1000ms", {"--strategy", "rtn"});
  EXPECT_EQ(o.code, 0) << o.error;
}

TEST_F(BudgetTest, CriteriaAndSpeedDecideToo) {
  fs::remove_all(path("v"));
  const Outcome first = quantize("v.gguf", "3.2bpw", {"--criteria", "outputs", "--work-folder", path("v")});
  EXPECT_EQ(first.code, 1);  // less than the least
  EXPECT_TRUE(contains(first.error, "criteria: formats are dropped")) << first.error;
  const Outcome o =
      quantize("v.gguf", "6bpw",
               {"--criteria", "outputs", "--as-fast-as", "q4_0", "--work-folder", path("v"), "--json", path("v.json")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_FALSE(contains(o.error, "criteria: formats are dropped")) << o.error;  // they are kept, as scores are
  // What is named is as fast as itself, whatever the others are.
  for (const auto& tensor : nlohmann::json::parse(read("v.json"))["tensors"]) {
    bool found = false;
    for (const auto& c : tensor["candidates"]) found |= c["format"] == "q4_0";
    EXPECT_TRUE(found) << tensor["name"];
  }
  EXPECT_EQ(quantize("v.gguf", "6bpw", {"--criteria", "looks"}).code, 2);
  EXPECT_EQ(quantize("v.gguf", "6bpw", {"--as-fast-as", "light"}).code, 2);
}

TEST_F(BudgetTest, RecipesGiveOptions) {
  std::ofstream(path("r.toml")) << "[compress]\nbudget = \"6bpw\"\ncandidates = [\"q4_0\", \"q8_0\"]\nctx-size = 16\n"
                                   "chunks = 20\ndesc-act = false\n";
  const std::vector<std::string> words = {"quantize", path("m/model.gguf"), path("r.gguf"), "--recipe", path("r.toml"),
                                          "--json",   path("r.json")};
  const Outcome o = lumen(words);
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "--budget 6bpw --candidates q4_0,q8_0 --ctx-size 16")) << o.error;
  const auto all = nlohmann::json::parse(read("r.json"));
  EXPECT_EQ(all["budget"], "6bpw");
  EXPECT_EQ(all["tensors"][0]["candidates"].size(), 2U);
  // The command line has the last word.
  std::vector<std::string> more = words;
  more.insert(more.end(), {"--budget", "8bpw"});
  ASSERT_EQ(lumen(more).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read("r.json"))["budget"], "8bpw");
  for (const char* wrong :
       {"[compress]\nbudgets = \"6bpw\"\n", "[compress]\nbudget = \"six\"\n", "[compress]\nctx-size = 1\n",
        "[model]\nsize = \"tiny\"\n", "[compress]\nrecipe = \"bits3\"\n"}) {
    std::ofstream(path("r.toml")) << wrong;
    EXPECT_EQ(lumen(words).code, 2) << wrong;
  }
  EXPECT_EQ(lumen({"quantize", path("m/model.gguf"), path("r.gguf"), "--recipe", "none"}).code, 2);
  const Outcome training = lumen({"train", "--recipe", "bits3", "-o", path("t")});
  EXPECT_EQ(training.code, 2);
  EXPECT_TRUE(contains(training.error, "lumen quantize")) << training.error;
}

TEST_F(BudgetTest, ScoresAreKept) {
  fs::remove_all(path("w"));
  const Outcome first = quantize("c.gguf", "3.2bpw", {"--work-folder", path("w")});
  EXPECT_EQ(first.code, 1);  // less than the least
  EXPECT_TRUE(contains(first.error, "least")) << first.error;
  const fs::path kept = fs::path(path("w")) / ("user-" + std::to_string(::geteuid())) / "scores/loss";
  ASSERT_TRUE(fs::exists(kept));
  fs::copy(path("w"), path("w2"), fs::copy_options::recursive);
  const Outcome second = quantize("c.gguf", "6bpw", {"--work-folder", path("w")});
  EXPECT_EQ(second.code, 0) << second.error;
  EXPECT_TRUE(contains(second.error, "scores are those of")) << second.error;
  EXPECT_FALSE(fs::exists(path("w")));
  // A broken file is not believed.
  fs::rename(path("w2"), path("w"));
  {
    std::fstream file(kept, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(20);
    file.put('#');
  }
  const Outcome third = quantize("c.gguf", "6bpw", {"--work-folder", path("w")});
  EXPECT_EQ(third.code, 0) << third.error;
  EXPECT_TRUE(contains(third.error, "weights are scored again")) << third.error;
}

TEST_F(BudgetTest, DryRunsComputeNothing) {
  const Outcome o = quantize("none.gguf", "6bpw", {"--dry-run"});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "the budget is")) << o.out;
  EXPECT_FALSE(fs::exists(path("none.gguf")));
  EXPECT_FALSE(fs::exists(path("none.gguf.work")));
  EXPECT_EQ(quantize("none.gguf", "2bpw", {"--dry-run"}).code, 1);
}

TEST_F(BudgetTest, Mistakes) {
  for (const char* wrong : {"", "3", "kl=-1", "4 eggs", "nanbpw", "0bpw"})
    EXPECT_EQ(quantize("x.gguf", wrong).code, 2) << wrong;
  EXPECT_EQ(lumen({"quantize", path("m/model.gguf"), path("x.gguf"), "q4_0", "--budget", "4bpw"}).code, 2);
  EXPECT_EQ(lumen({"quantize", path("m/model.gguf"), path("x.gguf")}).code, 2);
  EXPECT_EQ(lumen({"quantize", path("m/model.gguf"), path("x.gguf"), "--budget", "4bpw", "--candidates", "none"}).code,
            2);
  EXPECT_EQ(quantize("x.gguf", "6bpw", {"--strategy", "best"}).code, 2);
  EXPECT_FALSE(fs::exists(path("x.gguf")));
}

// A model that has learned something, and formats of few bits whose losses predictions take for smaller than they are.
class FarBudgetTest : public TinyModelTest {
 protected:
  static void SetUpTestSuite() {
    train({"--steps", "300", "--lr", "0.02", "-b", "16"});
    fs::create_directory(path("formats"));
    std::ofstream(path("formats/own.lum")) << R"(format sign32 : block 32 {
  s : f16
  q : u1[32]
  decode(i) = s * (2 * q[i] - 1)
  fit(x)    { s = (sum(j) abs(x[j])) / 32 }
  code(v)   = int(v > 0)
}
format wide32 : block 32 {
  s : f16
  q : u2[32]
  decode(i) = s * (2 * q[i] - 3)
  fit(x)    { s = 3 * (max(j) abs(x[j])) }
  code(v)   = int(v > 0) + 1
}
)";
  }
  static Outcome quantize(const std::string& budget, const std::string& candidates) {
    return lumen({"quantize",
                  path("m/model.gguf"),
                  path("o.gguf"),
                  "--formats",
                  path("formats"),
                  "--budget",
                  budget,
                  "--candidates",
                  candidates,
                  "-c",
                  "32",
                  "--chunks",
                  "300",
                  "--score-chunks",
                  "4",
                  "-b",
                  "4",
                  "--strategy",
                  "rtn",
                  "--overwrite",
                  "--json",
                  path("o.json")});
  }
};

TEST_F(FarBudgetTest, IsChosenAgainWhereTheLossIsFarFromThePrediction) {
  Outcome o = quantize("3.4bpw", "sign32,q8_0");
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "choosing again without sign32")) << o.error;
  EXPECT_TRUE(contains(o.error, "there is no choice without it")) << o.error;
  const auto only = nlohmann::json::parse(read("o.json"));
  ASSERT_EQ(only["points"].size(), 1U);

  // The other choice is worse: the first is written again.
  o = quantize("3.4bpw", "sign32,wide32,q8_0");
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "choosing again without sign32")) << o.error;
  EXPECT_TRUE(contains(o.error, "the choice before was better")) << o.error;
  const auto all = nlohmann::json::parse(read("o.json"));
  ASSERT_EQ(all["points"].size(), 3U);
  EXPECT_GT(all["points"][1]["kl"].get<double>(), all["points"][0]["kl"].get<double>());
  EXPECT_EQ(all["points"][2]["kl"], all["points"][0]["kl"]);
  EXPECT_EQ(all["result"]["kl"], only["result"]["kl"]);
  EXPECT_FALSE(fs::exists(path("o.gguf.work")));
}

}  // namespace
}  // namespace lumen::cli
