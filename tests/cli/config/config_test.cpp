// needs: none. The configuration file: which values have priority, aliases, and the errors about mistakes in it.
#include "cli/config/config.h"

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() {
    std::string name = (fs::temp_directory_path() / "lumen-config-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    ::setenv("LUMEN_CONFIG", file().c_str(), 1);
  }
  ~ConfigFile() override {
    ::unsetenv("LUMEN_CONFIG");
    ::unsetenv("LUMEN_STEPS");
    model::file::set_local_names({});
    fs::remove_all(folder_);
  }
  std::string file() const { return (folder_ / "config.toml").string(); }
  void put(const std::string& text) { std::ofstream(file()) << text; }
  // Parts of the error about a file with this text.
  void expect_error(const std::string& text, const std::vector<std::string>& parts) {
    put(text);
    const Outcome o = lumen({"doctor", "--json", "--absent"});
    EXPECT_NE(o.code, 0);
    for (const std::string& part : parts) EXPECT_TRUE(contains(o.error, part)) << part << " is not in: " << o.error;
  }
  fs::path folder_;
};

TEST_F(ConfigFile, Priorities) {
  put("[all]\nlr = 0.5\nsteps = 5\n[train]\nsteps = 7\nstrict = true\n");
  Outcome o = lumen({"train", "--print-config"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "steps = 7")) << o.out;
  EXPECT_TRUE(contains(o.out, "learning_rate = 0.5")) << o.out;
  EXPECT_TRUE(contains(o.out, "strict = true")) << o.out;
  ::setenv("LUMEN_STEPS", "8", 1);
  EXPECT_TRUE(contains(lumen({"train", "--print-config"}).out, "steps = 8"));
  EXPECT_TRUE(contains(lumen({"train", "--print-config", "--steps", "9", "--no-strict"}).out, "steps = 9"));
  EXPECT_FALSE(contains(lumen({"train", "--print-config", "--no-strict"}).out, "strict = true"));
  ::unsetenv("LUMEN_STEPS");
  EXPECT_FALSE(
      contains(lumen({"train", "--print-config", "--recipe", "char"}).out, "steps = 7"));  // the recipe sets it
  ::setenv("LUMEN_CONFIG", "off", 1);
  EXPECT_FALSE(contains(lumen({"train", "--print-config"}).out, "steps = 7"));
}

TEST_F(ConfigFile, SourcesOfValues) {
  put("[train]\n\nsteps = 7\n");
  EXPECT_TRUE(contains(lumen({"train", "--print-config", "-v"}).error, "--steps is from " + file() + ":3"));
  put("[train]\nsteps = \"many\"\n");
  const Outcome o = lumen({"train", "--print-config"});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(contains(o.error, "config.toml:2") && contains(o.error, "the configuration gives --steps")) << o.error;
}

TEST_F(ConfigFile, Mistakes) {
  expect_error("[trian]\n", {"config.toml:1", "'trian' is neither a command", "train"});
  expect_error("[train]\n\nsteps = 1\nstesp = 7\n", {"config.toml:4", "no option --stesp", "steps"});
  expect_error("threads = 4\n", {"config.toml:1", "[all]"});
  expect_error("[all]\nthraeds = 4\n", {"no command has an option --thraeds", "threads"});
  expect_error("[train]\nout = \"x\"\n", {"option of the command line alone"});
  expect_error("[train]\nsteps = {a = 1}\n", {"config.toml:2"});
  expect_error("[aliases]\n\"a/b\" = \"hf:u/r\"\n", {"cannot be an alias"});
  expect_error("[aliases]\na = \"hf:u\"\n", {"config.toml:2", "USER/REPO"});
  expect_error("[aliases]\na = 5\n", {"config.toml:2"});
  expect_error("[bench.kernel]\nthreads = 1\n", {"config.toml:", "no option --kernel"});
  expect_error("[train\n", {"config.toml:1"});
  EXPECT_EQ(lumen({"train", "--help"}).code, 0);
  put("[bench.kernels]\nthreads = 1\n");
  EXPECT_EQ(lumen({"train", "--print-config"}).code, 0);
}

TEST_F(ConfigFile, AMissingFile) {
  EXPECT_NE(lumen({"train", "--print-config"}).code, 0);
  ::unsetenv("LUMEN_CONFIG");
  ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  EXPECT_EQ(config_file(), folder_ / "lumen/config.toml");
  EXPECT_EQ(lumen({"train", "--print-config"}).code, 0);
  ::unsetenv("XDG_CONFIG_HOME");
}

TEST_F(ConfigFile, CommandsFlagsAndLists) {
  const Config config(
      "[all]\nno-mmap = true\nthreads = 2\n[bench.kernels]\nthreads = 3\n[run]\nlora = [\"a\", \"b\"]\n", "c",
      {"bench kernels"});
  const auto value = [&](const std::string& command, const std::string& option) {
    std::string out;
    for (const ConfiguredValue& one : config.values_for(command))
      if (one.option == option)
        for (const std::string& text : one.values) out += text + ";";
    return out;
  };
  EXPECT_EQ(value("run", "--mmap"), "false;");
  EXPECT_EQ(value("run", "--lora"), "a;b;");
  EXPECT_EQ(value("run", "--threads"), "2;");
  EXPECT_EQ(value("bench kernels", "--threads"), "3;");
  EXPECT_EQ(value("doctor", "--mmap"), "");
}

TEST_F(ConfigFile, Aliases) {
  put("model-folders = [\"/some/folder\"]\n[aliases]\nsmall = \"hf:user/repo:Q8_0\"\nown = \"/file.gguf\"\n");
  const Outcome o = lumen({"list"});
  EXPECT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "alias small = hf:user/repo:Q8_0")) << o.out;
  EXPECT_EQ(model::file::resolve_path("own"), "/file.gguf");
  EXPECT_TRUE(contains(lumen({"inspect", "small"}).error, "lumen pull user/repo:Q8_0"));
}

}  // namespace
}  // namespace lumen::cli
