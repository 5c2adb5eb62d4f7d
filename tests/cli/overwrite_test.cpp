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
    const auto library = model::Library::builtin();
    const model::FamilyRef family = library->family("llama");
    model::Model m = model::initialise(
        family,
        family->config("", {{"vocab", 4}, {"hidden", 32}, {"layers", 1}, {"heads", 2}, {"ffn", 32}, {"context", 16}}),
        1);
    m.tokenizer = model::Tokenizer::characters("abc\n");
    model::write_gguf(m, path("m.gguf"));
    model::write_hf(m, path("hf"));
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
