// needs: none. Vectors of encoders from the command line: files, pairs with scores, models beside each other.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file/file.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

const std::string kEncoders = std::string(LUMEN_SOURCE_DIR) + "/tests/model/fixtures/encoders/";
const std::string kPlain = kEncoders + "plain", kMasked = kEncoders + "masked";

class Embed : public testing::Test {
 protected:
  void SetUp() override {
    setenv("LUMEN_CACHE", (std::filesystem::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::string name = (std::filesystem::temp_directory_path() / "lumen-embed-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    write_file_atomic(folder_ / name, text);
    return path(name);
  }
  std::filesystem::path folder_;
};

TEST_F(Embed, WritesFilesAndTakesTheModelFirst) {
  const std::string texts = write("texts.txt", "the lazy dog\n\nover the fox\n한국어\n");
  const Outcome o = lumen({"embed", kPlain, "-f", texts, "--format", "json", "-o", path("vectors.json")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_EQ(o.out, "");
  const auto root = nlohmann::json::parse(read_file(path("vectors.json")));
  EXPECT_EQ(root["data"].size(), 3U);
  EXPECT_EQ(root["data"][2]["embedding"].size(), 24U);
  const Outcome alone = lumen({"embed", "-m", kPlain, "-f", texts, "--format", "array", "-b", "1", "--threads", "1"});
  const auto list = nlohmann::json::parse(alone.out);
  for (size_t d = 0; d < 24; ++d)
    EXPECT_NEAR(list[1][d].get<double>(), root["data"][1]["embedding"][d].get<double>(), 1e-5);
  EXPECT_EQ(lumen({"embed", kPlain, "-f", texts, "-o", texts}).code, 2);
  EXPECT_EQ(lumen({"embed", "-f", texts}).code, 2);
}

TEST_F(Embed, PairsAreMeasuredBesideAnotherModel) {
  const std::string pairs = write("pairs.tsv",
                                  "id\tscore\tsentence1\tsentence2\n"
                                  "a\t5.0\tthe lazy dog\tthe lazy dog\n"
                                  "b\t2.5\tover the fox\tthe lazy dog jumps\n"
                                  "c\t1.0\tover\tdog\n");
  const std::string rounded = path("rounded.gguf");
  ASSERT_EQ(lumen({"quantize", kPlain, rounded, "int8"}).code, 0);
  const Outcome o = lumen({"embed", kPlain, "--pairs", pairs, "--against", rounded, "--format", "json"});
  ASSERT_EQ(o.code, 0) << o.error;
  const auto root = nlohmann::json::parse(o.out);
  EXPECT_EQ(root["texts"], 6);
  ASSERT_EQ(root["models"].size(), 2U);
  EXPECT_FALSE(root["models"][0].contains("cosine_mean"));
  EXPECT_GT(root["models"][1]["cosine_min"].get<double>(), 0.99);
  EXPECT_LT(root["models"][1]["bits_per_weight"].get<double>(), 32);
  EXPECT_NEAR(root["models"][0]["pearson"].get<double>(), root["models"][1]["pearson"].get<double>(), 0.1);
  const Outcome table = lumen({"embed", kPlain, "-p", "the fox", "--against", rounded});
  ASSERT_EQ(table.code, 0) << table.error;
  EXPECT_TRUE(contains(table.out, "mean cosine")) << table.out;
  const std::string rows = write("pairs.jsonl",
                                 "{\"a\": \"the fox\", \"b\": \"the dog\", \"labels\": {\"label\": 1}}\n"
                                 "{\"a\": \"fox\", \"b\": \"fox\", \"labels\": {\"label\": 5}}\n");
  EXPECT_EQ(lumen({"embed", kPlain, "--pairs", rows, "--fields", "a,b,labels.label"}).code, 0);
  const Outcome missing = lumen({"embed", kPlain, "--pairs", rows});
  EXPECT_EQ(missing.code, 1);
  EXPECT_TRUE(contains(missing.error, "'sentence1' is missing")) << missing.error;
  EXPECT_EQ(lumen({"embed", kPlain, "--pairs", rows, "--fields", "a,b"}).code, 2);
  EXPECT_EQ(lumen({"embed", kPlain, "--pairs", rows, "--cosine"}).code, 2);
  EXPECT_EQ(lumen({"embed", kPlain, "--pairs", rows, "-p", "text"}).code, 2);
  EXPECT_EQ(lumen({"embed", kPlain, "--against", rounded, "--pooling", "none", "-p", "a"}).code, 2);
}

TEST_F(Embed, LongTextsAreCutOnlyWhenAsked) {
  std::string text = "fox";
  for (int i = 0; i < 150; ++i) text += " fox";
  const Outcome refused = lumen({"embed", kPlain, "-p", text});
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(contains(refused.error, "--truncate")) << refused.error;
  const Outcome cut = lumen({"embed", kPlain, "-p", text, "--truncate"});
  EXPECT_EQ(cut.code, 0) << cut.error;
  EXPECT_TRUE(contains(cut.error, "1 of 1 inputs were cut after 112 tokens")) << cut.error;
}

TEST_F(Embed, EncodersDoNotWrite) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", kPlain, "-p", "the"}, {"perplexity", kPlain, "-c", "16", "--chunks", "1"}}) {
    const Outcome o = lumen(command);
    EXPECT_EQ(o.code, 1) << command[0];
    EXPECT_TRUE(contains(o.error, "lumen embed")) << o.error;
  }
}

TEST_F(Embed, PromptsOfTheModel) {
  const std::string last = std::string(LUMEN_SOURCE_DIR) + "/tests/model/fixtures/embedders/last";
  const auto embed = [&](const std::string& text, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"embed", "-m", last, "-p", text};
    words.insert(words.end(), more.begin(), more.end());
    return lumen(words);
  };
  const Outcome by_name = embed("the lazy dog", {"--prompt-name", "query"});
  ASSERT_EQ(by_name.code, 0) << by_name.error;
  EXPECT_EQ(by_name.out, embed("Instruct: over the fox\nQuery:the lazy dog", {}).out);
  EXPECT_NE(by_name.out, embed("the lazy dog", {}).out);
  EXPECT_EQ(embed("the lazy dog", {"--prompt-name", "none"}).out, embed("the lazy dog", {}).out);
  EXPECT_NE(embed("the lazy dog", {"--pooling", "max"}).out, embed("the lazy dog", {"--pooling", "weighted"}).out);
  const Outcome wrong = embed("the lazy dog", {"--prompt-name", "quary"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(contains(wrong.error, "did you mean")) << wrong.error;
  const Outcome none = lumen({"embed", kPlain, "-p", "a", "--prompt-name", "query"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(contains(none.error, "the model has no prompts")) << none.error;
}

TEST_F(Embed, EncodersAreRoundedByImportanceAndByLayers) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  write("text.txt", text);
  const Outcome imatrix = lumen(
      {"imatrix", "-m", kMasked, "-f", path("text.txt"), "-c", "32", "--chunks", "2", "-o", path("imatrix.gguf")});
  ASSERT_EQ(imatrix.code, 0) << imatrix.error;
  EXPECT_FALSE(contains(imatrix.error, "perplexity")) << imatrix.error;
  EXPECT_EQ(lumen({"quantize", kMasked, path("a.gguf"), "int8", "--imatrix", path("imatrix.gguf")}).code, 0);
  const Outcome layers = lumen({"quantize", kMasked, path("b.gguf"), "int8", "--strategy", "imatrix", "-f",
                                path("text.txt"), "-c", "32", "--chunks", "2"});
  ASSERT_EQ(layers.code, 0) << layers.error;
  const Outcome both = lumen({"embed", kMasked, "-p", "the fox", "--against", path("a.gguf"), "--against",
                              path("b.gguf"), "--format", "json"});
  ASSERT_EQ(both.code, 0) << both.error;
  for (const auto& m : nlohmann::json::parse(both.out)["models"]) EXPECT_GT(m.value("cosine_min", 1.0), 0.99);
}

}  // namespace
}  // namespace lumen::cli
