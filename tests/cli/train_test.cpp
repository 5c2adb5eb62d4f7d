// needs: none. `lumen train` from the outside: what it resumes, refuses and leaves in its folder.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file/lock.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class TrainTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-train-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::ofstream(path("text.txt")) << text();
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string text() {
    std::string t;
    for (int i = 0; i < 400; ++i) t += i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ";
    return t;
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // A run on text.txt that is unlike the defaults in everything.
  Outcome train(const std::string& out, std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "train", "--shape",  "tiny", "--data", path("text.txt"), "--length", "16", "--batch",
        "4",     "--warmup", "2",    "--lr",   "1e-2",           "--seed",   "5",  "--eval-every",
        "0",     "--beta1",  "0.8",  "-o",     path(out),        "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  }
  std::string bytes(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  std::vector<std::string> names(const std::string& name) const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(path(name))) out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    return out;
  }
  fs::path folder_;
};

// The recipe, the data and all settings come from the checkpoint; the number of threads may be another one.
TEST_F(TrainTest, ResumingNeedsNoFlags) {
  ASSERT_EQ(train("whole", {"--steps", "8"}).code, 0);
  const Outcome half = train("half", {"--steps", "8", "--save-every", "5", "--keep", "0"});
  ASSERT_EQ(half.code, 0) << half.error;
  fs::remove_all(path("half/checkpoint-8"));
  fs::remove(path("half/model.gguf"));
  const Outcome resumed = lumen({"train", "-o", path("half"), "--resume", "-q", "-t", "1"});
  ASSERT_EQ(resumed.code, 0) << resumed.error;
  ASSERT_FALSE(bytes("whole/model.gguf").empty());
  EXPECT_TRUE(bytes("whole/model.gguf") == bytes("half/model.gguf"));
  // A named checkpoint is gone on with in its own folder.
  fs::remove(path("half/model.gguf"));
  ASSERT_EQ(lumen({"train", "--resume", path("half/checkpoint-5"), "-q"}).code, 0);
  EXPECT_TRUE(bytes("whole/model.gguf") == bytes("half/model.gguf"));
  // The stored recipe can be read.
  const Outcome config = lumen({"train", "--resume", path("half"), "--print-config"});
  EXPECT_EQ(config.code, 0) << config.error;
  for (const char* line : {"steps = 8", "seed = 5", "beta1 = 0.8", "batch = 4", "size = \"tiny\""})
    EXPECT_TRUE(contains(config.out, line)) << line << config.out;
  // Flags that repeat it are no contradiction.
  EXPECT_EQ(train("half", {"--steps", "8", "--resume"}).code, 0);
}

TEST_F(TrainTest, ContradictionsNameBothValues) {
  ASSERT_EQ(train("run", {"--steps", "4"}).code, 0);
  const auto resume = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"train", "--resume", path("run"), "-q"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  };
  const std::vector<std::tuple<std::string, std::string, std::string>> wrong = {
      {"--batch", "8", "4"},           {"--lr", "0.5", "0.01"},         {"--seed", "6", "5"},
      {"--beta1", "0.7", "0.8"},       {"--steps", "3", "4"},           {"--shape", "char", "tiny"},
      {"--length", "8", "16"},         {"--precision", "bf16", "f32"},  {"--schedule", "linear", "cosine"},
      {"--format", "q4_0", "nothing"}, {"--param-type", "bf16", "f32"}, {"--validation", "0.2", "0.1"},
      {"--accumulate", "2", "1"},      {"--max-grad-norm", "9", "1"},
  };
  for (const auto& [option, value, stored] : wrong) {
    const Outcome o = resume({option, value});
    EXPECT_EQ(o.code, 2) << option << o.error;
    EXPECT_TRUE(contains(o.error, value) && contains(o.error, stored)) << option << ": " << o.error;
  }
  EXPECT_EQ(resume({"--tokenizer", "bytes:300"}).code, 2);
  EXPECT_EQ(resume({"--recipe", "char"}).code, 2);
  EXPECT_EQ(resume({"--overwrite"}).code, 2);
  EXPECT_EQ(resume({"-m", path("run/model.gguf")}).code, 2);
  // What does not change the training may be another; so may what is said to change.
  EXPECT_EQ(resume({"--keep", "5", "--save-every", "1", "--eval-every", "2"}).code, 0);
  const Outcome changed = resume({"--allow-changed-recipe", "--lr", "1e-4", "--batch", "2", "--steps", "6"});
  EXPECT_EQ(changed.code, 0) << changed.error;
  EXPECT_TRUE(contains(lumen({"train", "--resume", path("run"), "--print-config"}).out, "batch = 2"));
  EXPECT_EQ(resume({"--allow-changed-recipe", "--param-type", "bf16"}).code, 2) << "of the model";
}

// A longer run does the planned steps as planned.
TEST_F(TrainTest, MoreStepsKeepTheSchedule) {
  ASSERT_EQ(train("a", {"--steps", "4"}).code, 0);
  const std::string four = bytes("a/checkpoint-4/model.safetensors");
  const Outcome longer = lumen({"train", "--resume", path("a"), "--steps", "6"});
  ASSERT_EQ(longer.code, 0) << longer.error;
  EXPECT_TRUE(contains(longer.error, "6 steps instead of 4")) << longer.error;
  EXPECT_TRUE(contains(longer.error, "0.0001")) << longer.error;
  ASSERT_EQ(train("b", {"--steps", "4", "--save-every", "2", "--keep", "0"}).code, 0);
  const Outcome early = lumen({"train", "--resume", path("b/checkpoint-2"), "--steps", "6", "--save-every", "2", "-q"});
  ASSERT_EQ(early.code, 0) << early.error;
  EXPECT_TRUE(bytes("b/checkpoint-4/model.safetensors") == four);
  // Of the files, recipes differ: one says six steps with a schedule of four.
  EXPECT_TRUE(bytes("a/checkpoint-6/model.safetensors") == bytes("b/checkpoint-6/model.safetensors"));
  ASSERT_EQ(train("zero", {"--steps", "4", "--min-lr", "0"}).code, 0);
  EXPECT_EQ(lumen({"train", "--resume", path("zero"), "--steps", "6", "-q"}).code, 2);
}

TEST_F(TrainTest, ChangedDataIsAnError) {
  ASSERT_EQ(train("run", {"--steps", "4"}).code, 0);
  std::string changed = text();
  changed[100] = changed[100] == 'a' ? 't' : 'a';
  fs::rename(path("text.txt"), path("moved.txt"));
  std::ofstream(path("text.txt")) << changed;
  const std::vector<std::string> resume = {"train", "--resume", path("run"), "--steps", "5", "-q"};
  const Outcome o = lumen(resume);
  EXPECT_EQ(o.code, 1);
  EXPECT_TRUE(contains(o.error, path("text.txt")) && contains(o.error, "--allow-changed-data")) << o.error;
  auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = resume;
    all.insert(all.end(), more.begin(), more.end());
    return lumen(all);
  };
  const Outcome moved = with({"--data", path("moved.txt")});
  EXPECT_EQ(moved.code, 0) << moved.error;
  EXPECT_EQ(lumen({"train", "--resume", path("run"), "--data", path("text.txt"), "-q"}).code, 1);
  const Outcome allowed =
      lumen({"train", "--resume", path("run"), "--data", path("text.txt"), "--allow-changed-data", "-q"});
  EXPECT_EQ(allowed.code, 0) << allowed.error;
  EXPECT_TRUE(contains(allowed.error, "the data has changed")) << allowed.error;
}

TEST_F(TrainTest, AFolderIsOneRuns) {
  ASSERT_EQ(train("run", {"--steps", "4"}).code, 0);
  const std::string model = bytes("run/model.gguf");
  const Outcome again = train("run", {"--steps", "5"});
  EXPECT_EQ(again.code, 1);
  EXPECT_TRUE(contains(again.error, "--overwrite") && contains(again.error, "--resume")) << again.error;
  // Not onto what it begins with, either.
  EXPECT_EQ(lumen({"train", "-m", path("run/model.gguf"), "--steps", "2", "-o", path("run"), "-q"}).code, 2);
  EXPECT_TRUE(bytes("run/model.gguf") == model);
  EXPECT_EQ(train("run", {"--steps", "2", "--overwrite"}).code, 0);
  EXPECT_EQ(names("run"),
            (std::vector<std::string>{"checkpoint-2", "metrics.jsonl", "model.gguf", "report.html", "run.json"}));
  const FolderLock other(path("run"));
  const Outcome locked = lumen({"train", "--resume", path("run"), "-q"});
  EXPECT_EQ(locked.code, 1);
  EXPECT_TRUE(contains(locked.error, "in use by process " + std::to_string(::getpid()))) << locked.error;
}

// A base that a run has rewritten is planned for, and goes with the run.
TEST_F(TrainTest, ARewrittenBaseIsOfItsRun) {
  ASSERT_EQ(train("given", {"--steps", "3"}).code, 0);
  const auto rewriting = [&](const std::string& more) {
    return lumen({"train",
                  "-m",
                  path("given/model.gguf"),
                  "--data",
                  path("text.txt"),
                  "--lora",
                  "--lora-init",
                  "pissa",
                  "--lora-rank",
                  "2",
                  "--lora-targets",
                  "attention_k",
                  "--steps",
                  "1",
                  "--eval-every",
                  "0",
                  "--length",
                  "16",
                  "-o",
                  path("out"),
                  "-q",
                  more});
  };
  const Outcome plan = rewriting("--plan");
  ASSERT_EQ(plan.code, 0) << plan.error;
  EXPECT_NE(plan.out.find("before that, to change the base"), std::string::npos) << plan.out;
  EXPECT_FALSE(fs::exists(path("out")));
  fs::create_directories(path("out"));
  for (const char* earlier : {"out/base.gguf", "out/beginning.safetensors"}) std::ofstream(path(earlier)) << "earlier";
  EXPECT_EQ(rewriting("--strict").code, 1);
  const Outcome again = rewriting("--overwrite");
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_NE(bytes("out/base.gguf"), "earlier");
}

TEST_F(TrainTest, TheFolderIsTriedFirst) {
  std::ofstream(path("file")) << "x";
  EXPECT_EQ(train("file", {"--steps", "1000000"}).code, 1);
  EXPECT_EQ(train("file/below", {"--steps", "1000000"}).code, 1);
  const Outcome room = train("room", {"--steps", "1000000000000", "--save-every", "1", "--keep", "0"});
  EXPECT_EQ(room.code, 1);
  EXPECT_TRUE(contains(room.error, "room")) << room.error;
  // A killed run's leavings go with the next.
  ASSERT_EQ(train("run", {"--steps", "2"}).code, 0);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string dead = std::to_string(child);
  fs::create_directories(path("run/.checkpoint-9." + dead + ".0.part"));
  std::ofstream(path("run/.model.gguf." + dead + ".1.part")) << "half";
  std::ofstream(path("run/.metrics.jsonl." + dead + ".2.part")) << "half";
  ASSERT_EQ(lumen({"train", "--resume", path("run"), "-q"}).code, 0);
  for (const std::string& name : names("run")) EXPECT_NE(name[0], '.') << name;
}

TEST_F(TrainTest, NothingThatDivergesIsCalledASuccess) {
  const Outcome o = lumen({"train", "--shape", "tiny", "--length", "16", "--batch", "4", "--steps", "1", "--warmup",
                           "0", "--lr", "1e30", "-o", path("out"), "-q"});
  EXPECT_EQ(o.code, 4) << o.error;
  EXPECT_TRUE(contains(o.error, "nothing was saved")) << o.error;
  EXPECT_EQ(names("out"), std::vector<std::string>{"metrics.jsonl"});
}

TEST_F(TrainTest, QuantizedModelsTrainAndAreWrittenAsAsked) {
  ASSERT_EQ(train("run", {"--steps", "4"}).code, 0);
  const std::string small = path("small.gguf");
  ASSERT_EQ(lumen({"quantize", path("run/model.gguf"), small, "q4_0", "-q"}).code, 0);
  const std::vector<std::string> tune = {"train",   "-m", small,      "--data", path("text.txt"), "--batch", "4",
                                         "--steps", "3",  "--warmup", "1",      "--eval-every",   "0"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = tune;
    all.insert(all.end(), more.begin(), more.end());
    return lumen(all);
  };
  const Outcome o = with({"-o", path("tuned"), "--output-type", "q8_0"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.error, "training in f32: 15 tensors decoded from q4_0, 1 from q8_0")) << o.error;
  EXPECT_TRUE(contains(o.out, "model.gguf (q8_0)")) << o.out;
  EXPECT_TRUE(contains(lumen({"inspect", path("tuned/model.gguf")}).out, "q8_0"));
  const Outcome longer = with({"-o", path("longer"), "--length", "32"});
  EXPECT_EQ(longer.code, 0) << longer.error;
  EXPECT_TRUE(contains(longer.error, "context grows from 16 to 32")) << longer.error;
  // Resumed without the model it began with.
  const std::string whole = bytes("tuned/model.gguf");
  fs::remove(small);
  fs::remove(path("tuned/model.gguf"));
  ASSERT_EQ(lumen({"train", "--resume", path("tuned"), "-q"}).code, 0);
  EXPECT_TRUE(bytes("tuned/model.gguf") == whole);
  // The model brings a tokenizer.
  const Outcome two =
      lumen({"train", "-m", path("run/model.gguf"), "--tokenizer", "characters", "-o", path("x"), "-q"});
  EXPECT_EQ(two.code, 2);
  EXPECT_TRUE(contains(two.error, "--tokenizer") && contains(two.error, "--model")) << two.error;
}

// A family of one's own without names for a Hugging Face folder: told before the first step.
TEST_F(TrainTest, OutputsAreCheckedBeforeTheFirstStep) {
  fs::create_directory(path("families"));
  std::ofstream(path("families/mine.lum"))
      << "model mine(cfg) : extends llama, gguf \"mine\" {\n"
         "  size small { hidden = 32; layers = 1; heads = 2; ffn = 64; context = 16 }\n"
         "}\n";
  const auto mine = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> all = {
        "train",    "--models", path("families"), "--shape", "small", "--data", path("text.txt"), "--batch", "4",
        "--warmup", "0",        "--eval-every",   "0",       "-q",    "-o",     path(out)};
    all.insert(all.end(), more.begin(), more.end());
    return lumen(all);
  };
  const Outcome folder = mine("m", {"--steps", "1000000", "--hf"});
  EXPECT_EQ(folder.code, 1) << folder.error;
  EXPECT_TRUE(contains(folder.error, "mine") && contains(folder.error, "--hf")) << folder.error;
  EXPECT_EQ(mine("n", {"--steps", "2"}).code, 0);
  const Outcome type = train("a", {"--steps", "1000000", "--output-type", "nonsense"});
  EXPECT_EQ(type.code, 1) << type.error;
  const Outcome both = train("b", {"--steps", "1000000", "--output-type", "q8_0", "--hf"});
  EXPECT_EQ(both.code, 2) << both.error;
  EXPECT_TRUE(contains(both.error, "--hf") && contains(both.error, "--output-type")) << both.error;
  EXPECT_EQ(train("c", {"--steps", "2", "--hf", "--output-type", "bf16"}).code, 0);
  EXPECT_TRUE(fs::exists(path("c/hf/config.json")));
}

// The signals of people and machines: a checkpoint, and 128 + the number.
TEST_F(TrainTest, SignalsSave) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string out = "stopped" + std::to_string(number);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::signal(number, SIG_DFL);  // below nohup it would stay ignored
      ::execl(LUMEN_BINARY_DIR "/lumen", "lumen", "train", "--shape", "tiny", "--data", path("text.txt").c_str(),
              "--length", "16", "--batch", "4", "--steps", "100000000", "--eval-every", "0", "-q", "-t", "1", "-o",
              path(out).c_str(), static_cast<char*>(nullptr));
      ::_exit(99);
    }
    // The first metrics are written after the first step, when signals are waited for.
    for (int i = 0;
         i < 3000 && (!fs::exists(path(out) + "/metrics.jsonl") || fs::file_size(path(out) + "/metrics.jsonl") == 0);
         ++i)
      ::usleep(10000);
    ::kill(child, number);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
    const auto left = names(out);
    ASSERT_EQ(left.size(), 3U);
    EXPECT_TRUE(left.front().starts_with("checkpoint-")) << left.front();
    EXPECT_EQ(left[1], "metrics.jsonl");
    EXPECT_EQ(left[2], "report.html");
  }
}

}  // namespace
}  // namespace lumen::cli
