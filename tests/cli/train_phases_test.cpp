// needs: none. Runs in phases from the outside: what a resumed one may be told.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class TrainPhasesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lumen-phases-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    setenv("LUMEN_CACHE", (fs::temp_directory_path() / "lumen-test-cache").c_str(), 1);
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 400; ++i) text << (i % 3 == 0 ? "the cat sat on the mat. " : "a dog ran to the cat. ");
    text.close();
    std::ofstream(path("recipe.toml")) << "[model]\nsize = \"tiny\"\n[data]\npath = \"" << path("text.txt")
                                       << "\"\n[run]\nbatch = 2\nlength = 16\nevaluate_every = 0\nsave_every = 2\n"
                                          "[schedule]\nwarmup_steps = 1\nsteps = 4\nlearning_rate = 1e-3\n"
                                          "[[phase]]\nname = \"a\"\n[[phase]]\nname = \"b\"\n[phase.run]\nbatch = 3\n";
    const Outcome o = lumen({"train", "-r", path("recipe.toml"), "-o", path("run"), "-q"});
    ASSERT_EQ(o.code, 0) << o.error;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(path(name), std::ios::binary).rdbuf();
    return out.str();
  }
  // As if the run had been killed when the first phase was over, or in the middle of the second.
  void interrupted(bool has_begun) const {
    std::string state = read("run/phases.json");
    const size_t at = state.find("\"done\": 2");
    ASSERT_NE(at, std::string::npos) << state;
    state.replace(at, 9, "\"done\": 1");
    std::ofstream(path("run/phases.json")) << state;
    if (!has_begun) {
      fs::remove_all(path("run/2-b"));
    } else {
      for (const char* gone : {"checkpoint-4", "model.gguf", "run.json"}) fs::remove_all(path("run/2-b") + "/" + gone);
    }
  }
  Outcome resume(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train", "--resume", path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return lumen(arguments);
  }
  fs::path folder_;
};

TEST_F(TrainPhasesTest, ContradictionsNameBothValues) {
  const std::string model = read("run/model.gguf");
  for (const bool has_begun : {false, true}) {
    interrupted(has_begun);
    for (const auto& [flag, value, stored] : std::vector<std::tuple<std::string, std::string, std::string>>{
             {"--lr", "0.5", "0.001"}, {"--batch", "8", "3"}, {"--seed", "6", "1"}, {"--format", "q4_0", "nothing"}}) {
      const Outcome o = resume({flag, value});
      EXPECT_EQ(o.code, 2) << flag << o.error;
      EXPECT_TRUE(contains(o.error, value) && contains(o.error, stored)) << flag << ": " << o.error;
    }
    for (const std::vector<std::string>& wrong :
         std::vector<std::vector<std::string>>{{"-m", path("run/1-a/model.gguf")},
                                               {"-r", path("recipe.toml")},
                                               {"--overwrite"},
                                               {"-o", path("elsewhere")}}) {
      const Outcome o = resume(wrong);
      EXPECT_EQ(o.code, 2) << wrong[0] << o.error;
      EXPECT_TRUE(contains(o.error, wrong[0].substr(wrong[0].find_last_of('-') + 1))) << o.error;
    }
    // What changes nothing of the training may be said, and it ends in the same bytes.
    const Outcome o = resume({"--keep", "5"});
    EXPECT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(read("run/model.gguf") == model) << has_begun;
  }
}

TEST_F(TrainPhasesTest, ChangesThatAreAskedForAreMadeAndTold) {
  const std::string model = read("run/model.gguf");
  for (const bool has_begun : {false, true}) {
    interrupted(has_begun);
    const std::string rate = has_begun ? "0.25" : "0.5", before = has_begun ? "0.5" : "0.001";
    const Outcome o = resume({"--lr", rate, "--allow-changed-recipe"});
    EXPECT_EQ(o.code, 0) << o.error;
    EXPECT_TRUE(contains(o.error, "schedule.learning_rate: " + rate + " here, " + before + " in the")) << o.error;
    EXPECT_FALSE(read("run/model.gguf") == model) << has_begun;
    EXPECT_FALSE(contains(read("run/1-a/recipe.toml"), "0.5")) << "what is done stays as it was done";
  }
}

}  // namespace
}  // namespace lumen::cli
