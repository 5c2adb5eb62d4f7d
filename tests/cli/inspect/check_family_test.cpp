// needs: none. `lumen compile --check-family`: its table, exit codes and refusals.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file/file.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = LUMEN_SOURCE_DIR;
const std::string kRecorded = kSource / "tests" / "model" / "fixtures" / "recorded";

Outcome check(const std::string& family, const std::string& recording, std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"compile", "--check-family", family, "--against", kRecorded + "/" + recording};
  words.insert(words.end(), more.begin(), more.end());
  return lumen(words);
}

TEST(CheckFamily, AgreesOrNamesThePart) {
  const Outcome good = check("qwen3", "qwen3");
  EXPECT_EQ(good.code, 0) << good.error;
  EXPECT_TRUE(contains(good.out, "outputs agree within")) << good.out;
  EXPECT_TRUE(contains(good.out, "model.layers.1 ")) << good.out;
  EXPECT_FALSE(contains(good.out, "self_attn")) << "parts are listed where something differs: " << good.out;

  std::string text = read_file(kSource / "models" / "llama.lum", 1 << 20);
  const std::string right = "fn normed(x, w) = rms_norm(x, w, cfg.eps)";
  text.replace(text.find(right), right.size(), "fn normed(x, w) = rms_norm(x, w, 0.01)");
  const fs::path wrong = fs::temp_directory_path() / "lumen-check-family.lum";
  write_file_atomic(wrong, text);
  const Outcome bad = check(wrong, "llama_tied_bias");
  EXPECT_EQ(bad.code, 5) << bad.error;
  EXPECT_TRUE(contains(bad.out, "<- first")) << bad.out;
  EXPECT_TRUE(contains(bad.out, "the first difference is in 'model.layers.0.input_layernorm'")) << bad.out;
  fs::remove(wrong);
}

TEST(CheckFamily, Mistakes) {
  EXPECT_EQ(lumen({"compile", "--check-family", "qwen3"}).code, 2);
  EXPECT_EQ(lumen({"compile", "qwen3", "--against", kRecorded + "/qwen3"}).code, 2);
  EXPECT_EQ(check("qwen3", "qwen3", {"--emit", "loops"}).code, 2);
  const Outcome other = check("llama", "qwen3");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.error, "is 'qwen3', not 'llama'")) << other.error;
  const Outcome unknown = check("qwen33", "qwen3");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_TRUE(contains(unknown.error, "did you mean")) << unknown.error;
  EXPECT_EQ(check("absent.lum", "qwen3").code, 1);
  const Outcome none = check("qwen3", "absent");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(contains(none.error, "record_model.py")) << none.error;
}

}  // namespace
}  // namespace lumen::cli
