// needs: none. `lumen correct`: an adapter beside a rounded model, as a file that other commands take; and mistakes.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/convert/tiny_model.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class CorrectTest : public TinyModelTest {
 protected:
  static void SetUpTestSuite() {
    train({"--steps", "300", "--warmup", "20", "--lr", "1e-2"});
    ASSERT_EQ(lumen({"quantize", path("m/model.gguf"), path("q4.gguf"), "q4_0", "-q"}).code, 0);
  }
  static Outcome correct(const std::string& out, std::vector<std::string> more = {}) {
    return lumen(
        {"correct", path("m/model.gguf"), path("q4.gguf"), "-o", path(out), "-c", "16", "--chunks", "40", "-q"}, more);
  }
  static std::string perplexity(std::vector<std::string> more) {
    std::vector<std::string> words = {"perplexity", "-c", "16", "--chunks", "4", "-q"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 0) << o.error;
    return o.out.substr(0, o.out.rfind(','));  // without the rate
  }
};

TEST_F(CorrectTest, AdaptersThatOtherCommandsTake) {
  for (const char* out : {"a.gguf", "folder"}) {
    const Outcome o = correct(out, {"--rank", "8", "--check-chunks", "8"});
    ASSERT_EQ(o.code, 0) << o.error;
    for (const char* part : {"blk.0.ffn_down.weight", "of outputs", "without the adapter", "remarks:"})
      EXPECT_TRUE(contains(o.out, part)) << part << o.out;
    EXPECT_FALSE(contains(o.error, "does not help")) << o.out;
    EXPECT_NE(perplexity({"-m", path("q4.gguf"), "--lora", path(out)}), perplexity({"-m", path("q4.gguf")}));
  }
  EXPECT_EQ(perplexity({"-m", path("q4.gguf"), "--lora", path("a.gguf")}),
            perplexity({"-m", path("q4.gguf"), "--lora", path("folder")}));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    EXPECT_FALSE(contains(entry.path().filename().string(), "work")) << entry.path();
  EXPECT_EQ(lumen({"verify", path("a.gguf")}).code, 0) << lumen({"verify", path("a.gguf")}).out;
}

TEST_F(CorrectTest, WithoutAText) {
  const Outcome o = correct("svd.gguf", {"--method", "svd", "-r", "4", "--no-check"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_FALSE(contains(o.out, "KL divergence"));
  EXPECT_TRUE(fs::exists(path("svd.gguf")));
}

TEST_F(CorrectTest, Mistakes) {
  EXPECT_EQ(lumen({"correct", path("m/model.gguf"), path("q4.gguf")}).code, 2);
  EXPECT_EQ(correct("x.gguf", {"--method", "magic"}).code, 2);
  EXPECT_EQ(correct("x.gguf", {"--rank", "0"}).code, 2);
  EXPECT_EQ(correct("x.gguf", {"--method", "svd", "-f", path("absent.txt")}).code, 2);
  EXPECT_EQ(correct("x.gguf", {"-f", path("absent.txt")}).code, 1);
  EXPECT_EQ(lumen({"correct", path("m/model.gguf"), path("m/model.gguf"), "-o", path("x.gguf"), "-c", "16"}).code, 1);
  EXPECT_FALSE(fs::exists(path("x.gguf")));
  ASSERT_EQ(correct("there.gguf", {"--method", "svd", "--no-check"}).code, 0);
  EXPECT_EQ(correct("there.gguf", {"--method", "svd", "--no-check"}).code, 1);
  EXPECT_EQ(correct("there.gguf", {"--method", "svd", "--no-check", "--overwrite"}).code, 0);
}

}  // namespace
}  // namespace lumen::cli
