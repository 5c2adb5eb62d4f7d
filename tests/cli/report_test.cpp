// needs: none. `lumen report`, and the flags of `lumen train` that say what it watches.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class ReportTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-report-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::ofstream out(path("text.txt"));
    for (int i = 0; i < 400; ++i) out << (i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ");
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "train", "--shape",      "tiny", "--data", path("text.txt"), "--length", "16", "--batch", "4", "--warmup",
        "2",     "--eval-every", "3",    "-o",     path(out),        "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  fs::path folder_;
};

TEST_F(ReportTest, OfOneRunAndOfSeveral) {
  ASSERT_EQ(train("a", {"--steps", "6", "--tensorboard", "--sample-prompt", "the cat"}).code, 0);
  ASSERT_EQ(train("b", {"--steps", "4", "--lr", "1e-2", "--report_to", "none"}).code, 0);
  EXPECT_TRUE(fs::exists(path("a/tensorboard")));
  EXPECT_FALSE(fs::exists(path("b/tensorboard")));
  // Written by the run itself; the same again.
  const std::string own = read("a/report.html");
  for (const char* part : {"\"curves\"", "\"samples\"", "the cat", "text.txt", "llama", "learning_rate",
                           "recipe_changes", "lumen chat -m ", "\"what\":\"f32\""})
    EXPECT_TRUE(contains(own, part)) << part;
  EXPECT_FALSE(contains(own, "\"key\":\"optimizer.beta1\"")) << "a default of the optimizer is no difference";
  fs::remove(path("a/report.html"));
  const Outcome again = lumen({"report", path("a")});
  EXPECT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(read("a/report.html"), own);
  const Outcome both = lumen({"report", path("a"), path("b/metrics.jsonl"), "-o", path("both.html")});
  EXPECT_EQ(both.code, 0) << both.error;
  EXPECT_TRUE(contains(read("both.html"), "schedule.learning_rate"));
  const Outcome text = lumen({"report", path("a"), path("b"), "--text"});
  EXPECT_EQ(text.code, 0) << text.error;
  for (const char* part : {"training", "validation", "what differs", "schedule.learning_rate", "0.01"})
    EXPECT_TRUE(contains(text.out, part)) << part << text.out;
}

TEST_F(ReportTest, OfACompression) {
  std::ofstream(path("c.json"))
      << R"({"lumen_compression": 1, "model": "some <model>", "base": {"bytes": 4000, "bits": 16},
    "result": {"name": "small", "bytes": 1000, "bits": 4, "kl": 0.5}})";
  const Outcome page = lumen({"report", path("c.json")});
  EXPECT_EQ(page.code, 0) << page.error;
  EXPECT_TRUE(contains(read("c.html"), "\"title\":\"some \\u003cmodel>\""));
  EXPECT_EQ(lumen({"report", path("c.json"), "-o", path("other.html")}).code, 0);
  EXPECT_EQ(read("other.html"), read("c.html"));
  const Outcome text = lumen({"report", path("c.json"), "--text"});
  EXPECT_TRUE(contains(text.out, "KL divergence")) << text.out;
  EXPECT_EQ(lumen({"report", path("c.json"), path("c.json")}).code, 2);
  EXPECT_EQ(lumen({"report", path("c.json"), "-o", path("c.json")}).code, 2);
  std::ofstream(path("bad.json")) << R"({"lumen_compression": 1, "base": {"bytes": "x", "bits": 16}})";
  const Outcome bad = lumen({"report", path("bad.json")});
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(contains(bad.error, "bad.json.base.bytes is no number")) << bad.error;
  EXPECT_FALSE(fs::exists(path("bad.html")));
}

TEST_F(ReportTest, HostileLogs) {
  EXPECT_EQ(lumen({"report", path("nowhere")}).code, 1);
  EXPECT_EQ(lumen({"report"}).code, 2);
  fs::create_directories(path("bad"));
  std::ofstream(path("bad/metrics.jsonl")) << "garbage\n";
  const Outcome bad = lumen({"report", path("bad")});
  EXPECT_EQ(bad.code, 1);
  EXPECT_TRUE(contains(bad.error, "line 1")) << bad.error;
  std::ofstream(path("bad/metrics.jsonl")) << "{\"step\": 1, \"loss\": 2}\ngarbage\n"
                                           << "{\"step\": 2, \"event\": \"\\u001b[31m\", \"text\": \"<script>\"}\n";
  const Outcome some = lumen({"report", path("bad")});
  EXPECT_EQ(some.code, 0) << some.error;
  EXPECT_TRUE(contains(some.error, "1 lines are left out")) << some.error;
  EXPECT_TRUE(contains(read("bad/report.html"), "\"text\":\"\\u003cscript>\""));
  EXPECT_FALSE(contains(lumen({"report", path("bad"), "--text"}).out, "\x1b"));
}

TEST_F(ReportTest, TheBestIsHandedOver) {
  const Outcome o = train("best", {"--steps", "30", "--lr", "5e-2", "--min-lr", "5e-2", "--early_stopping_patience",
                                   "1", "--load_best_model_at_end", "--keep", "1"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "the best weights, of step")) << o.out;
  EXPECT_TRUE(fs::exists(path("best/best/model.safetensors")));
  // A resumed run that is over writes the same model.
  const std::string model = read("best/model.gguf");
  fs::remove(path("best/model.gguf"));
  const Outcome again = lumen({"train", "--resume", path("best"), "-q"});
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_TRUE(read("best/model.gguf") == model);
}

TEST_F(ReportTest, FlagsAreChecked) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{{"--on-nan", "ignore"},
                                                                                     {"--spike-factor", "-1"},
                                                                                     {"--metric", "accuracy"},
                                                                                     {"--eval-tasks", "none_such"},
                                                                                     {"--report_to", "wandb"},
                                                                                     {"--early-stopping", "x"}})
    EXPECT_EQ(train("wrong", wrong).code, 2) << wrong[0];
}

}  // namespace
}  // namespace lumen::cli
