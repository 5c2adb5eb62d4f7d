// needs: none. `lumen train` on rows of files: what is found, counted, refused, and what tokenizers are made of.
#include <filesystem>
#include <fstream>

#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class TrainDataTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-train-data-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void save(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  // `count` rows that ask for a capital.
  void save_chats(int count) const {
    std::string text;
    for (int i = 0; i < count; ++i)
      text +=
          "{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of Korea?\"}, "
          "{\"role\": \"assistant\", \"content\": \"Seoul is the capital of Korea.\"}]}\n";
    save("chats.jsonl", text);
  }
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train", "--shape", "tiny",    "--steps",      "2", "-c",
                                          "64",    "-o",      path(out), "--warmup",     "1", "-b",
                                          "2",     "--lr",    "1e-3",    "--eval-every", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  }
  fs::path folder_;
};

// Byte pairs are found in chats as their template writes them, though the model that is to come has none yet.
TEST_F(TrainDataTest, TokenizersAreMadeOfChats) {
  save_chats(24);
  const Outcome o = train("run", {"--data", path("chats.jsonl"), "--tokenizer", "bytes:270", "--validation", "0.25"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "vocabulary 270")) << o.error;
  EXPECT_TRUE(contains(o.error, "holds chats")) << o.error;
}

// A vocabulary that the text does not fill is said; one without any text is refused.
TEST_F(TrainDataTest, TokenizersOfTooLittle) {
  save_chats(24);
  const Outcome small =
      train("small", {"--data", path("chats.jsonl"), "--tokenizer", "bytes:9000", "--validation", "0.25"});
  EXPECT_EQ(small.code, 0) << small.error;
  EXPECT_TRUE(contains(small.error, "the text gives a vocabulary of")) << small.error;
  save("odd.jsonl", "{\"messages\": 7}\n{\"messages\": [{\"role\": 3}]}\n");
  const Outcome none = train("none", {"--data", path("odd.jsonl"), "--form", "chats", "--tokenizer", "bytes:300"});
  EXPECT_EQ(none.code, 1) << none.error;
  EXPECT_FALSE(fs::exists(path("none") + "/model.gguf"));
}

// Rows that cannot be used are counted with their lines; with --strict they end the run.
TEST_F(TrainDataTest, RowsThatAreDroppedAreCounted) {
  save_chats(24);
  std::ofstream(path("chats.jsonl"), std::ios::app) << "{\"messages\": [}\n{\"other\": 1}\n";
  const std::vector<std::string> flags = {
      "--data", path("chats.jsonl"), "--tokenizer", "bytes:270", "--validation", "0.25", "--form", "chats"};
  const Outcome counted = train("run", flags);
  ASSERT_EQ(counted.code, 0) << counted.error;
  EXPECT_TRUE(contains(counted.error, "24 rows kept, 2 dropped")) << counted.error;
  EXPECT_TRUE(contains(counted.error, "chats.jsonl:25")) << counted.error;
  EXPECT_TRUE(contains(counted.error, "chats.jsonl:26")) << counted.error;
  std::vector<std::string> strict = flags;
  strict.push_back("--strict");
  EXPECT_EQ(train("strict", strict).code, 1);
}

}  // namespace
}  // namespace lumen::cli
