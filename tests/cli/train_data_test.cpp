// needs: none. `lumen train` on rows of files: what is found, counted, refused, and what tokenizers are made of.
#include <algorithm>
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
    std::vector<std::string> arguments = {"train", "--shape", "tiny", "--steps",      "2", "-o", path(out), "--warmup",
                                          "1",     "--lr",    "1e-3", "--eval-every", "0"};
    const auto add_default = [&](const char* flag, const char* value) {
      if (std::find(more.begin(), more.end(), flag) == more.end()) arguments.insert(arguments.end(), {flag, value});
    };
    add_default("-c", "64");
    add_default("-b", "2");
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

// Too little text to evaluate with is said before weights are rounded and memory is taken for them.
TEST_F(TrainDataTest, TooLittleIsSaidFirst) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a line of text that goes on\n";
  save("text.txt", text);
  const Outcome o = train(
      "run", {"--data", path("text.txt"), "--validation", "0.005", "--precision", "bf16", "--param-type", "bf16"});
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(contains(o.error, "fewer than one window")) << o.error;
  EXPECT_FALSE(contains(o.error, "decoded")) << o.error;
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
  // Once, though the tokenizer is made of the same rows.
  EXPECT_EQ(counted.error.find("chats.jsonl:25"), counted.error.rfind("chats.jsonl:25")) << counted.error;
  std::vector<std::string> strict = flags;
  strict.push_back("--strict");
  EXPECT_EQ(train("strict", strict).code, 1);
}

// Several sets by their shares, other files for validation, and the last answer alone: all of it is in the recipe.
TEST_F(TrainDataTest, SetsSharesAndWhatIsLearned) {
  save_chats(8);
  std::string talks;
  for (int i = 0; i < 8; ++i)
    talks +=
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"bb\"},"
        "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"dddd\"}]}\n";
  save("talks.jsonl", talks);
  save("held.csv", "prompt,completion\na,b\nc,d\ne,f\n");
  save("plain.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}");
  const std::string both = path("chats.jsonl") + "," + path("talks.jsonl");
  const auto learned = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> flags = {"--data",         both,    "--tokenizer", "bytes:270", "--validation-data",
                                      path("held.csv"), "--plan"};
    flags.insert(flags.end(), more.begin(), more.end());
    const Outcome o = train(out, flags);
    EXPECT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.error, "3 rows for validation")) << o.error;
    EXPECT_TRUE(contains(o.error, "16 rows of 64 positions an epoch")) << o.error;
    const size_t end = o.error.find(" of them learned"), begin = o.error.rfind(' ', end - 1);
    return std::stoi(o.error.substr(begin, end - begin));
  };
  const int every = learned("every", {}), last = learned("last", {"--train-on", "last", "--mix", "0.75,0.25"});
  EXPECT_LT(last, every);
  EXPECT_GT(learned("all", {"--train-on", "all"}), every);
  const Outcome shares = train("shares", {"--data", both, "--tokenizer", "bytes:270", "--mix", "0.5"});
  EXPECT_NE(shares.code, 0);
  EXPECT_TRUE(contains(shares.error, "1 shares for 2 data sets")) << shares.error;
}

// Rows of a Parquet file are rows as any.
TEST_F(TrainDataTest, ParquetFiles) {
  const std::string file = LUMEN_SOURCE_DIR "/tests/model/fixtures/parquet/chats_zstd.parquet";
  const Outcome o = train("run", {"--data", file, "--tokenizer", "bytes:270", "--validation", "0.25", "-c", "512"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "holds chats")) << o.error;
  const Outcome shown = lumen({"data", "preview", "-m", path("run") + "/model.gguf", "--data", file, "-n", "1"});
  EXPECT_EQ(shown.code, 0) << shown.error;
  EXPECT_TRUE(contains(shown.out, "chats_zstd.parquet:1")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "12 examples")) << shown.out;
}

// A template's file is named so that the run finds it from wherever it is resumed.
TEST_F(TrainDataTest, TemplatesAreNamedByWholePaths) {
  save_chats(8);
  save("own.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}");
  const fs::path here = fs::current_path();
  const std::string file = fs::relative(path("own.jinja"), here).string();
  ASSERT_FALSE(fs::path(file).is_absolute());
  const Outcome o = train("run", {"--data", path("chats.jsonl"), "--tokenizer", "bytes:270", "--validation", "0.25",
                                  "--chat-template", file});
  ASSERT_EQ(o.code, 0) << o.error;
  std::ifstream state(path("run") + "/checkpoint-2/trainer_state.json");
  const std::string text(std::istreambuf_iterator<char>(state), {});
  EXPECT_TRUE(contains(text, path("own.jinja"))) << text;
}

// What the model says to a question, with what ended it behind it.
std::string answer_of(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"chat", "--temp",  "0",  "-n",
                                    "40",   "--times", "-p", "What is the capital of Korea?"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome o = lumen(words);
  EXPECT_EQ(o.code, 0) << o.error;
  return o.out;
}

// A model trained from nothing has the template's control tokens, and one that ends its answers: it stops.
TEST_F(TrainDataTest, ModelsOfChatsEndTheirAnswers) {
  save_chats(16);
  const Outcome o = lumen({"train",
                           "--shape",
                           "tiny",
                           "--steps",
                           "100",
                           "--lr",
                           "1e-2",
                           "--warmup",
                           "5",
                           "-b",
                           "8",
                           "-c",
                           "64",
                           "--eval-every",
                           "50",
                           "--sample-prompt",
                           "What is the capital of Korea?",
                           "--data",
                           path("chats.jsonl"),
                           "--tokenizer",
                           "bytes:290",
                           "--chat-template",
                           "chatml",
                           "--validation",
                           "0.25",
                           "-o",
                           path("run"),
                           "--hf"});
  ASSERT_EQ(o.code, 0) << o.error;
  // What is asked while it trains is asked in a chat, too.
  std::ifstream metrics(path("run") + "/metrics.jsonl");
  const std::string told(std::istreambuf_iterator<char>(metrics), {});
  EXPECT_TRUE(contains(told, "\"text\":\"Seoul is the capital of Korea.\"")) << told.substr(told.size() / 2);
  for (const char* written : {"/model.gguf", "/hf"}) {
    EXPECT_EQ(answer_of({"-m", path("run") + written}), "Seoul is the capital of Korea.\n") << written;
    const Outcome ids = lumen({"chat", "-m", path("run") + written, "-p", "a", "--show-prompt", "--ids"});
    EXPECT_TRUE(ids.out.starts_with("1 ")) << ids.out;  // <|im_start|> is one token
  }
}

// The template that is trained with is the adapter's, and the merged model's; a base's own gives way.
TEST_F(TrainDataTest, TheTemplateOfTrainingIsCarried) {
  save_chats(16);
  ASSERT_EQ(
      train("base", {"--data", path("chats.jsonl"), "--tokenizer", "bytes:290", "--chat-template", "chatml"}).code, 0);
  const std::string base = path("base") + "/model.gguf";
  save("own.jinja",
       "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% "
       "endif %}");
  const auto tune = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> words = {"train",
                                      "-m",
                                      base,
                                      "--steps",
                                      "1",
                                      "-b",
                                      "2",
                                      "-c",
                                      "64",
                                      "--data",
                                      path("chats.jsonl"),
                                      "--chat-template",
                                      path("own.jinja"),
                                      "-o",
                                      path(out)};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 0) << o.error;
  };
  tune("lora", {"--lora", "--merge", "f32", "--hf"});
  tune("full", {});
  const Outcome merged = lumen({"merge", base, path("lora") + "/adapter", "-o", path("merged.gguf"), "--no-check"});
  ASSERT_EQ(merged.code, 0) << merged.error;
  fs::remove(path("own.jinja"));
  const auto prompt = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"chat", "-p", "Hi", "--show-prompt"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 0) << o.error;
    return o.out;
  };
  EXPECT_EQ(prompt({"-m", base}), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  for (const std::string adapter : {"/adapter", "/adapter.gguf"})
    EXPECT_EQ(prompt({"-m", base, "--lora", path("lora") + adapter}), "[user] Hi\n[assistant]") << adapter;
  for (const std::string model : {"lora/model.gguf", "lora/hf", "full/model.gguf", "merged.gguf"})
    EXPECT_EQ(prompt({"-m", path(model)}), "[user] Hi\n[assistant]") << model;
  // One that is asked for counts before an adapter's.
  EXPECT_EQ(prompt({"-m", base, "--lora", path("lora") + "/adapter", "--chat-template", "plain"}),
            "User: Hi\nAssistant:");
  // A run goes on with its template, though the file is gone.
  const Outcome on = lumen({"train", "--resume", path("full"), "--steps", "2"});
  EXPECT_EQ(on.code, 0) << on.error;
}

}  // namespace
}  // namespace lumen::cli
