// needs: none. Commands that run models, from the outside: many prompts, drafts, adapters, vectors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "outcome.h"

namespace lumen::cli {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// One small model for all tests.
class Infer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("LUMEN_CACHE", (std::filesystem::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::string name = (std::filesystem::temp_directory_path() / "lumen-infer-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "3", "--eval-every", "0", "-o", path("m"), "-q"}).code, 0);
    ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "1", "--eval-every", "0", "--tokenizer", "bytes:300", "-o",
                     path("other"), "-q"})
                  .code,
              0);
    std::ofstream(path("prompts.txt")) << "ROMEO:\nROMEO: I\r\n\nWhat\n";
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static std::string path(const std::string& name) { return (folder_ / name).string(); }
  static std::string model() { return path("m/model.gguf"); }
  static inline std::filesystem::path folder_;
};

TEST_F(Infer, ManyPromptsAreAnsweredInTheirOrder) {
  const Outcome all =
      lumen({"run", model(), "--prompts", path("prompts.txt"), "-n", "8", "--temp", "0", "--exact", "-np", "2"});
  ASSERT_EQ(all.code, 0) << all.error;
  const auto outputs = lines(all.out);
  ASSERT_EQ(outputs.size(), 3U) << all.out;
  const std::vector<std::string> prompts = {"ROMEO:", "ROMEO: I", "What"};
  for (size_t i = 0; i < 3; ++i) {
    const Outcome one = lumen({"run", model(), "-p", prompts[i], "-n", "8", "--temp", "0", "--exact"});
    EXPECT_EQ(one.out, outputs[i] + "\n");
  }
  const Outcome json =
      lumen({"run", model(), "--prompts", path("prompts.txt"), "-n", "4", "--json", "-ns", "2", "-s", "1"});
  ASSERT_EQ(json.code, 0) << json.error;
  const auto objects = lines(json.out);
  ASSERT_EQ(objects.size(), 6U);
  const auto last = nlohmann::json::parse(objects[5]);
  EXPECT_EQ(last["index"], 2);
  EXPECT_EQ(last["sequence"], 1);
  EXPECT_EQ(last["prompt"], "What");
  EXPECT_EQ(last["end"], "limit");
  EXPECT_EQ(lines(lumen({"run", model(), "-p", "A", "-n", "2", "-np", "3", "--json"}).out).size(), 3U);
}

TEST_F(Infer, ManyPromptsMistakes) {
  std::ofstream(path("bad.jsonl")) << "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n";
  Outcome o = lumen({"run", model(), "--prompts", path("bad.jsonl")});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(contains(o.error, "bad.jsonl:2")) << o.error;
  EXPECT_EQ(lumen({"run", model(), "-np", "2"}).code, 2);
  EXPECT_EQ(lumen({"run", model(), "-np", "257", "-p", "a"}).code, 2);
  EXPECT_EQ(lumen({"run", model(), "-p", "a", "--json"}).code, 2);
}

TEST_F(Infer, DraftsWriteTheSame) {
  const std::vector<std::string> plain = {"run",    model(), "-p",     "to be or not to be", "-n", "12",
                                          "--temp", "0",     "--exact"};
  const Outcome want = lumen(plain);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--lookup"}, {"-md", model()}, {"--model-draft", model(), "--draft", "3"}}) {
    std::vector<std::string> arguments = plain;
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome got = lumen(arguments);
    ASSERT_EQ(got.code, 0) << got.error;
    EXPECT_EQ(got.out, want.out);
    if (flags[0] != "--lookup") {
      EXPECT_TRUE(contains(got.error, "tokens accepted")) << got.error;
    }
    // Several sequences with chance, too.
    std::vector<std::string> together = {
        "run", model(),  "-p",     "to be or not to be", "-n", "12", "-np", "2", "-ns", "3", "--temp", "0.7", "--seed",
        "4",   "--json", "--exact"};
    const auto outputs = [&] {
      std::vector<std::string> out;
      const Outcome o = lumen(together);
      EXPECT_EQ(o.code, 0) << o.error;
      for (const std::string& line : lines(o.out)) out.push_back(nlohmann::json::parse(line)["text"]);
      return out;
    };
    const std::vector<std::string> alone = outputs();
    together.insert(together.end(), flags.begin(), flags.end());
    EXPECT_EQ(outputs(), alone);
    const Outcome counted = lumen(together);
    EXPECT_TRUE(nlohmann::json::parse(lines(counted.out)[0]).contains("draft")) << counted.out;
    EXPECT_EQ(alone.size(), 3U);
  }
  const Outcome other = lumen({"run", model(), "-p", "a", "-md", path("other/model.gguf")});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(contains(other.error, "the draft has 300 tokens")) << other.error;
}

// Weights in memory of their own write the same text; a GPU has a copy anyway.
TEST_F(Infer, WeightsAreMappedOrCopied) {
  const std::vector<std::string> words = {"run", model(), "-p", "ROMEO:", "-n", "8", "--temp", "0"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return lumen(more);
  };
  const Outcome mapped = with({"--mmap"}), copied = with({"--no-mmap"});
  ASSERT_EQ(mapped.code, 0) << mapped.error;
  ASSERT_EQ(copied.code, 0) << copied.error;
  EXPECT_EQ(mapped.out, copied.out);
  const Outcome refused = with({"--no-mmap", "--device", "cuda"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(contains(refused.error, "--no-mmap goes with --device cpu")) << refused.error;
}

TEST_F(Infer, AdaptersAreNamedScaledAndChecked) {
  const std::string fixtures = std::string(LUMEN_SOURCE_DIR) + "/tests/model/fixtures/";
  const std::string adapter = fixtures + "adapters/every_product";
  const Outcome bench =
      lumen({"bench", "-m", fixtures + "families/llama", "-p", "4", "-n", "0", "-r", "1", "--lora", adapter + "=0.5"});
  ASSERT_EQ(bench.code, 0) << bench.error;
  EXPECT_TRUE(contains(bench.error, "15 weights, rank 4, scale 0.5")) << bench.error;
  const Outcome wrong = lumen({"run", model(), "-p", "a", "--lora", adapter});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_TRUE(contains(wrong.error, "the adapter was made for another model")) << wrong.error;
  EXPECT_EQ(lumen({"run", model(), "-p", "a", "--lora", adapter + "=much"}).code, 2);
  EXPECT_EQ(lumen({"run", model(), "-p", "a", "--lora-scaled", adapter}).code, 2);
  EXPECT_EQ(lumen({"perplexity", model(), "--lora", path("nowhere")}).code, 1);
  EXPECT_EQ(lumen({"run", model(), "-p", "a", "--lora", model()}).code, 1);  // a model, not an adapter
}

TEST_F(Infer, EmbedSpeaksPlainAndJson) {
  const Outcome plain = lumen({"embed", "-m", model(), "Good day", "Good night"});
  ASSERT_EQ(plain.code, 0) << plain.error;
  EXPECT_EQ(lines(plain.out).size(), 2U);
  std::istringstream numbers(lines(plain.out)[0]);
  double length = 0;
  int count = 0;
  for (double v = 0; numbers >> v; ++count) length += v * v;
  EXPECT_EQ(count, 32);
  EXPECT_NEAR(length, 1, 1e-6);
  const Outcome json = lumen({"embed", "-m", model(), "-p", "Good day", "-p", "Good night", "--format", "json+",
                              "--pooling", "last", "--normalize", "-1"});
  ASSERT_EQ(json.code, 0) << json.error;
  const auto root = nlohmann::json::parse(json.out);
  EXPECT_EQ(root["data"].size(), 2U);
  EXPECT_EQ(root["data"][1]["index"], 1);
  EXPECT_NEAR(root["cosineSimilarity"][0][0].get<double>(), 1, 1e-9);
  const Outcome cosines = lumen({"embed", "-m", model(), "-f", path("prompts.txt"), "--cosine"});
  EXPECT_EQ(lines(cosines.out).size(), 3U) << cosines.out;
  EXPECT_EQ(lumen({"embed", "-m", model(), "a", "--pooling", "rank"}).code, 2);
  EXPECT_EQ(lumen({"embed", "-m", model(), "a", "--pooling", "none", "--cosine"}).code, 2);
  EXPECT_EQ(lumen({"embed", "-m", model(), std::string(99, 'a')}).code, 1);  // longer than the context
}

// A model whose sequences begin with a token of their own can begin with nothing else.
TEST_F(Infer, AnEmptyTextIsOneWhereTheModelHasABeginning) {
  const std::string spm = std::string(LUMEN_SOURCE_DIR) + "/tests/model/fixtures/tokenizers/llama-spm.gguf";
  ASSERT_EQ(lumen({"train", "--shape", "tiny", "--steps", "1", "--eval-every", "0", "--tokenizer", spm, "-o",
                   path("bos"), "-q"})
                .code,
            0);
  const std::string with = path("bos/model.gguf");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"-ns", "1"}}) {
    std::vector<std::string> words = {"run", "-m", with, "-p", "", "-n", "4", "--temp", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = lumen(words);
    ASSERT_EQ(o.code, 0) << o.error;
    EXPECT_GT(o.out.size(), 1U);
  }
  EXPECT_EQ(lumen({"tokenize", "-m", with, "--special", "--ids", ""}).out, "1\n");
  EXPECT_EQ(lumen({"embed", "-m", with, "-p", ""}).code, 0);
  const Outcome none = lumen({"run", "-m", model(), "-p", "", "-n", "4"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(contains(none.error, "the prompt is empty")) << none.error;
}

TEST_F(Infer, ExplainTellsOfManyTextsToo) {
  const Outcome o = lumen({"run", model(), "--prompts", path("prompts.txt"), "-n", "3", "--explain"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "step of 3 sequences, 1 token each")) << o.error;
}

TEST_F(Infer, PromptsAreShownAsTheModelReadsThem) {
  const Outcome text = lumen({"chat", "-m", path("other/model.gguf"), "-p", "Hello", "--system", "Be brief.",
                              "--chat-template", "chatml", "--show-prompt", "-q"});
  ASSERT_EQ(text.code, 0) << text.error;
  EXPECT_EQ(text.out,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  const Outcome ids = lumen({"chat", "-m", path("other/model.gguf"), "-p", "Hello", "--system", "Be brief.",
                             "--chat-template", "chatml", "--show-prompt", "--ids", "-q"});
  EXPECT_EQ(ids.out, lumen({"tokenize", "-m", path("other/model.gguf"), "--ids", text.out}).out);
  std::ofstream(path("talk.json")) << R"({"messages": [{"role": "user", "content": "A"},
    {"role": "assistant", "content": "B"}]})";
  const Outcome loaded = lumen({"chat", "-m", path("other/model.gguf"), "--load", path("talk.json"), "-p", "C",
                                "--chat-template", "chatml", "--show-prompt", "-q"});
  EXPECT_EQ(loaded.out,
            "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
            "<|im_start|>assistant\n")
      << loaded.error;
}

}  // namespace
}  // namespace lumen::cli
