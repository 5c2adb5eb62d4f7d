// needs: none. Commands that write do not write over what they read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "model/arch/checkpoint/write.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class Overwrite : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-overwrite-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    const auto library = model::arch::Library::builtin();
    const model::arch::FamilyRef family = library->family("llama");
    model::arch::Model m = model::arch::initialise(
        family,
        family->config("", {{"vocab", 4}, {"hidden", 32}, {"layers", 1}, {"heads", 2}, {"ffn", 32}, {"context", 16}}),
        1);
    m.tokenizer = model::text::Tokenizer::characters("abc\n");
    model::arch::write_gguf(m, path("m.gguf"));
    model::arch::write_hf(m, path("hf"));
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string bytes(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream out;
    out << in.rdbuf();
    return out.str();
  }
  fs::path folder_;
};

TEST_F(Overwrite, NeedsItsFlag) {
  const std::string m = path("m.gguf"), before = bytes(m), weights = path("hf/model.safetensors"),
                    folder = bytes(weights);
  fs::create_symlink(m, path("link.gguf"));
  const std::vector<std::vector<std::string>> refused = {
      {"quantize", m, m, "q4_0"},
      {"quantize", m, path("link.gguf"), "q4_0"},
      {"quantize", m, path("hf/../m.gguf"), "q4_0"},
      {"export", m, m, "--type", "f16"},
      {"export", path("hf"), path("hf"), "--type", "f16"},
      {"export", path("hf"), weights, "--to", "gguf"},
      {"perplexity", "-m", m, "--record-logits", m},
      {"compare", m, m, "--html", m},
      {"correct", m, m, "-o", m},
  };
  for (const auto& command : refused) {
    const Outcome o = lumen(command);
    EXPECT_EQ(o.code, 2) << command[0] << " " << o.error;
    EXPECT_TRUE(contains(o.error, "which is read") || contains(o.error, "is read and")) << o.error;
  }
  EXPECT_EQ(bytes(m), before);
  EXPECT_EQ(bytes(weights), folder);
  EXPECT_TRUE(fs::is_symlink(path("link.gguf")));

  EXPECT_EQ(lumen({"quantize", m, m, "q4_0", "--dry-run"}).code, 0);
  EXPECT_EQ(lumen({"quantize", m, path("q.gguf"), "q4_0"}).code, 0);
  EXPECT_EQ(lumen({"quantize", m, path("q.gguf"), "q8_0"}).code, 0);  // another file is replaced
  EXPECT_EQ(lumen({"quantize", m, m, "q4_0", "--overwrite"}).code, 0);
  EXPECT_NE(bytes(m), before);
  EXPECT_EQ(lumen({"export", path("hf"), path("hf"), "--type", "f16", "--overwrite"}).code, 0);
  EXPECT_NE(bytes(weights), folder);
}

// Commands whose outputs are reports, and whose inputs are named by tasks, runs and recipes.
TEST_F(Overwrite, AlsoOfReports) {
  const std::string m = path("m.gguf"), before = bytes(m);
  std::ofstream(path("rows.jsonl")) << "{\"q\":\"a\",\"w\":\"b\"}\n{\"q\":\"b\",\"w\":\"a\"}\n";
  std::ofstream(path("t.toml")) << "name = \"t\"\nkind = \"generate\"\ndata = \"rows.jsonl\"\nprompt = "
                                   "\"{{q}}\"\nanswer = \"{{w}}\"\nmost = 2\nuntil = [\"c\"]\n";
  const std::string rows = bytes(path("rows.jsonl")), task = bytes(path("t.toml"));
  fs::create_directories(path("run"));
  fs::copy(m, path("run/model.gguf"));
  std::ofstream(path("run/metrics.jsonl")) << "{\"step\":1,\"loss\":2.0}\n";
  const std::vector<std::string> eval = {"eval", "-m", m, "--task-file", path("t.toml"), "--tasks", "t"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const auto& command : {with(eval, {"-o", m}),
                              with(eval, {"-o", path("t.toml")}),
                              with(eval, {"-o", path("rows.jsonl")}),
                              with(eval, {"--log-samples", path("rows.jsonl")}),
                              with(eval, {"--data", path(""), "--log-samples", path("rows.jsonl")}),
                              {"quantize", m, path("q.gguf"), "q4_0", "--strategy", "rtn", "--json", m},
                              {"quantize", m, path("q.gguf"), "q4_0", "--strategy", "rtn", "--html", m},
                              {"quantize", m, m, "q4_0", "--overwrite", "--strategy", "rtn", "--json", m},
                              {"report", path("run"), "-o", path("run/model.gguf")},
                              {"report", path("run"), "-o", path("run/metrics.jsonl")},
                              {"train", "-m", path("run"), "--out", path("run")}}) {
    const Outcome o = lumen(command);
    EXPECT_EQ(o.code, 2) << command[0] << " " << o.error;
    EXPECT_TRUE(contains(o.error, "is read") || contains(o.error, "are the same file")) << o.error;
  }
  EXPECT_EQ(bytes(m), before);
  EXPECT_EQ(bytes(path("run/model.gguf")), before);
  EXPECT_EQ(bytes(path("rows.jsonl")), rows);
  EXPECT_EQ(bytes(path("t.toml")), task);
  // What is no input is replaced, in a folder that is read as well: a command can be repeated.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(lumen(with(eval, {"-o", path("figures.json"), "--log-samples", path("samples.jsonl")})).code, 0);
    EXPECT_EQ(lumen({"report", path("run")}).code, 0);
    EXPECT_EQ(lumen({"report", path("run"), "-o", path("run/mine.html")}).code, 0);
  }
}

// A recipe names what is read, too.
TEST_F(Overwrite, AlsoOfWhatRecipesName) {
  fs::create_directories(path("run"));
  fs::rename(path("m.gguf"), path("run/model.gguf"));
  const std::string before = bytes(path("run/model.gguf"));
  std::ofstream(path("r.toml")) << "[objective]\nname = \"distillation\"\nteacher = \"" << path("run/model.gguf")
                                << "\"\n[model]\nfamily = \"llama\"\nsize = \"tiny\"\n";
  const Outcome o = lumen({"train", "--recipe", path("r.toml"), "--out", path("run"), "--overwrite"});
  EXPECT_EQ(o.code, 2) << o.error;
  EXPECT_TRUE(contains(o.error, "is read")) << o.error;
  EXPECT_EQ(bytes(path("run/model.gguf")), before);
}

TEST_F(Overwrite, LinksAreWrittenThrough) {
  fs::create_symlink(path("target.gguf"), path("link.gguf"));
  EXPECT_EQ(lumen({"quantize", path("m.gguf"), path("link.gguf"), "q4_0"}).code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.gguf")));
  EXPECT_TRUE(fs::exists(path("target.gguf")));
  fs::create_symlink(path("none/target.gguf"), path("dangling.gguf"));
  const Outcome o = lumen({"quantize", path("m.gguf"), path("dangling.gguf"), "q4_0"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(contains(o.error, "symbolic link")) << o.error;
  EXPECT_TRUE(fs::is_symlink(path("dangling.gguf")));
}

TEST_F(Overwrite, AlsoOfTextsAndSources) {
  std::ofstream(path("text.txt")) << std::string(4000, 'a') << "b";
  const std::string before = bytes(path("text.txt"));
  EXPECT_EQ(lumen({"tokenize", "--train", path("text.txt"), "--vocabulary", "300", "-o", path("text.txt")}).code, 2);
  EXPECT_EQ(
      lumen({"perplexity", "-m", path("m.gguf"), "-f", path("text.txt"), "--record-logits", path("text.txt")}).code, 2);
  EXPECT_EQ(bytes(path("text.txt")), before);
  std::ofstream(path("f.lum")) << "fn f(x: f32[4]) -> f32[4] = x + x\n";
  EXPECT_EQ(lumen({"compile", path("f.lum"), "--function", "f", "-o", path("f.lum")}).code, 2);
}

}  // namespace
}  // namespace lumen::cli
