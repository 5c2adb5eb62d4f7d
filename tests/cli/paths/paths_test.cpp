// needs: none. Every option of every command that takes a path says whether it reads or writes it, and no output is
// taken that would replace an input: all pairs are tried, by the parser's own table of options.
#include "cli/paths/paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "cli/command.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

// Names of types that are no paths.
const std::set<std::string> kNoPaths = {
    "",
    "24G",
    "A,B,..",
    "ADDRESS",
    "B=1,T=512",
    "BITS",
    "BUDGET",
    "CHANNELS:FACTOR",
    "DEVICE",
    "FLOAT",
    "FORM",
    "FORMAT",
    "FORMATS",
    "HOST:PORT",
    "ID+N",
    "ID...",
    "INT",
    "JSON",
    "KEY",
    "KEY=NUMBER",
    "KIND",
    "MACHINE",
    "N",
    "NAME",
    "NAME,..",
    "NAME,...",
    "NAME=COLUMN",
    "NAME=NUMBER",
    "NAME=WEIGHTS,ACTIVATIONS",
    "NAMES",
    "NATS",
    "NUMBER",
    "NxK,...",
    "ORIGIN",
    "P,N",
    "PART",
    "PLACE",
    "R",
    "RATE",
    "REGEX",
    "REGEX=FORMAT",
    "SEED",
    "SHARE",
    "SIZE",
    "SPACES",
    "TYPE",
    "TYPE,...",
    "UINT",
    "WHAT",
    "WHEN",
    "WHERE",
    "[PATTERN=]FORMAT",
    "[REGEX=]SHARE",
    "none|exact|FORMAT",
    "none|maps|layers|auto|4GiB",
    "none|states|gradients|parameters",
    "stochastic|nearest",
};

// Options whose type has no name of its own, and whose values are texts or names.
const std::set<std::string> kTexts = {
    "family",
    "shape",
    "train-on",
    "epochs",
    "overflow",
    "batch",
    "length",
    "steps",
    "lr",
    "min-lr",
    "warmup",
    "schedule",
    "optimizer",
    "momentum",
    "ema",
    "weight-decay",
    "max-grad-norm",
    "beta1",
    "beta2",
    "epsilon",
    "accumulate",
    "lora-rank",
    "lora-alpha",
    "lora-dropout",
    "lora-plus",
    "max-kl",
    "validation",
    "eval-every",
    "save-every",
    "keep",
    "on-nan",
    "spike-factor",
    "rollbacks",
    "eval-limit",
    "sample-prompt",
    "sample-tokens",
    "early-stopping",
    "metric",
    "seed",
    "tensor-parallel",
    "format",
    "form",
    "system",
    "prompt",
    "stop",
    "dry-sequence-breaker",
    "grammar",
    "special-token",
    "output-format",
    "split",
    "method",
    "loss",
    "how",
    "only",
    "bits",
    "table",
    "tables",
    "methods",
    "function",
    "target",
    "emit",
    "per",
    "ranges",
    "name",
    "sampler",
    "fields",
    "text",
    "objective",
    "rotation",
    "reverse-prompt",
};

// The commands that do something, with the words that call them.
void collect(CLI::App& app, const std::vector<std::string>& words,
             std::vector<std::pair<std::vector<std::string>, CLI::App*>>& out) {
  const auto below = app.get_subcommands([](CLI::App*) { return true; });
  if (app.get_require_subcommand_min() == 0 && !words.empty()) out.emplace_back(words, &app);
  for (CLI::App* sub : below) {
    std::vector<std::string> more = words;
    more.push_back(sub->get_name());
    collect(*sub, more, out);
  }
}

bool takes_value(const CLI::Option& option) {
  return option.get_expected_max() > 0 && option.get_type_size() > 0;
}

// Without what its checks add: "INT:from 0", "N:1 to 4096".
std::string type_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  for (const char* name : {"INT", "UINT", "FLOAT", "N"})
    if (type.starts_with(std::string(name) + ":")) return name;
  return type.starts_with("HOST:PORT") || type.starts_with("CHANNELS:") ? type : type.substr(0, type.find(':'));
}

std::string name_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : option.get_lnames().front();
}

class PathsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("lumen-paths-test-{}", ::getpid());
    for (const char* name : {"input.txt", "m.gguf", "folder/train-labels", "run/run.json", "run/checkpoint-1/x.json"}) {
      fs::create_directories((root_ / name).parent_path());
      write_file_atomic(root_ / name, kBytes);
    }
    app_ = make_app(command_);
    collect(*app_, {}, commands_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string path(const std::string& name) const { return (root_ / name).string(); }

  // An input as a kind of option wants it, and the file of it that must stay.
  std::string input(Reads what) const {
    if (what == Reads::folder) return path("folder");
    if (what == Reads::run) return path("run");
    return path(what == Reads::model ? "m.gguf" : "input.txt");
  }
  std::string file_of(Reads what) const {
    if (what == Reads::folder) return path("folder/train-labels");
    if (what == Reads::run) return path("run/run.json");
    return input(what);
  }

  std::string filler(CLI::Option& option) const {
    if (const auto reads = declared_reads(option)) return input(*reads);
    if (declared_writes(option)) return path("out" + name_of(option));
    const std::string type = option.get_type_name();
    if (type.find("WEIGHTS") != std::string::npos) return "a=f32,f32";
    if (type.starts_with("HOST")) return "127.0.0.1:1";
    if (type.starts_with("FORMAT")) return "f32";
    if (type.find("INT") != std::string::npos || type.find("FLOAT") != std::string::npos) return "1";
    return "x";
  }

  // The words that call a command with these two options, and with what it cannot do without.
  std::vector<std::string> words(const std::vector<std::string>& call, CLI::App& app, CLI::Option* in, CLI::Option* out,
                                 const std::string& target) const {
    std::vector<std::string> all = call;
    const std::vector<CLI::Option*> options = app.get_options({});
    for (CLI::Option* option : options) {
      const bool asked = option == in || option == out;
      const bool needed = std::any_of(options.begin(), options.end(), [&](CLI::Option* o) {
        return (o == in || o == out) && o->get_needs().contains(option);
      });
      if (!asked && !needed && !option->get_required()) continue;
      const std::string value = option == out ? target : option == in ? input(*declared_reads(*in)) : filler(*option);
      const int times = std::max(1, option->get_items_expected_min());
      if (!option->get_lnames().empty() && times == 1)
        all.push_back("--" + option->get_lnames().front() + "=" + value);
      else
        for (int i = 0; i < times; ++i) all.push_back(value);
    }
    return all;
  }

  static constexpr const char* kBytes = "what must stay";
  fs::path root_;
  Command command_;
  std::unique_ptr<CLI::App> app_;
  std::vector<std::pair<std::vector<std::string>, CLI::App*>> commands_;
};

TEST_F(PathsTest, EveryOptionSaysWhetherItReadsOrWrites) {
  EXPECT_GT(commands_.size(), 40U);
  for (const auto& [call, app] : commands_)
    for (CLI::Option* option : app->get_options({})) {
      if (!takes_value(*option)) continue;
      const bool reads = declared_reads(*option).has_value(), writes = declared_writes(*option).has_value();
      EXPECT_FALSE(reads && writes) << call.back() << " " << option->get_name();
      if (reads || writes) continue;
      if (option->get_type_name().find(":{") != std::string::npos) continue;  // one of a few names
      const std::string type = type_of(*option);
      EXPECT_TRUE(kNoPaths.contains(type) || (type == "TEXT" && kTexts.contains(name_of(*option))))
          << fmt::format("lumen {}: {} takes '{}' ({}): is it a path? Then reads() or writes() says so.",
                         fmt::join(call, " "), option->get_name(), option->get_type_name(), name_of(*option));
    }
}

TEST_F(PathsTest, NoOutputReplacesAnInput) {
  int tried = 0;
  for (const auto& [call, app] : commands_)
    for (CLI::Option* out : app->get_options({}))
      for (CLI::Option* in : app->get_options({})) {
        const auto writes = declared_writes(*out);
        const auto reads = declared_reads(*in);
        if (!writes || !reads || *writes == Writes::folder_of_cache) continue;
        // These follow tasks, checkpoints and folders of libraries; other tests know those.
        if (*reads == Reads::tasks || *reads == Reads::resumed || *reads == Reads::library) continue;
        const bool to_folder = *writes == Writes::folder || *writes == Writes::folder_of_run;
        const bool of_folder = *reads == Reads::folder || *reads == Reads::run;
        const std::string target = to_folder && of_folder ? input(*reads) : file_of(*reads);
        const std::vector<std::string> all = words(call, *app, in, out, target);
        const std::string shown = fmt::format("lumen {}", fmt::join(all, " "));
        const Outcome o = lumen(all);
        EXPECT_TRUE(o.code == 1 || o.code == 2) << shown << "\n" << o.code << "\n" << o.error;
        EXPECT_EQ(read_file(file_of(*reads)), kBytes) << shown;
        if (contains(o.error, "cannot be given together") || (to_folder && !of_folder))
          continue;  // refused before, or no folder
        EXPECT_TRUE(contains(o.error, "is read") || contains(o.error, "are the same file")) << shown << "\n" << o.error;
        ++tried;
      }
  EXPECT_GT(tried, 60);
}

TEST_F(PathsTest, TwoOutputsAreTwoFiles) {
  fs::create_symlink(path("a.json"), path("link.json"));
  for (const char* other : {"a.json", "link.json", "folder/../a.json"}) {
    const Outcome o = lumen({"quantize", path("m.gguf"), path("out.gguf"), "f32", "--strategy", "rtn", "--json",
                             path("a.json"), "--html", path(other)});
    EXPECT_EQ(o.code, 2) << other << o.error;
    EXPECT_TRUE(contains(o.error, "are the same file")) << o.error;
  }
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
}

TEST_F(PathsTest, AnOutputThatCannotBeWrittenIsSaidFirst) {
  const auto said = [&](const std::string& out) {
    const Outcome o = lumen({"compile", path("input.txt"), "-o", out});
    EXPECT_EQ(o.code, 1) << o.error;
    return o.error;
  };
  EXPECT_TRUE(contains(said(path("none/out")), "there is no folder"));
  EXPECT_TRUE(contains(said(path("input.txt/out")), "is not a folder"));
  EXPECT_TRUE(contains(said(path("folder")), "it is a folder"));
  fs::create_symlink(path("none/out"), path("dangling"));
  EXPECT_TRUE(contains(said(path("dangling")), "symbolic link"));
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
}

TEST_F(PathsTest, AreFoundInValues) {
  const std::string file = path("input.txt");
  for (const std::string& value :
       {file, "name=" + file, file + "=0.5", file + ":0.5", "name=" + file + "=0.5", "name=" + file + ":2"})
    EXPECT_EQ(paths_in(value), std::vector<std::string>{file}) << value;
  EXPECT_EQ(paths_in(file + "," + path("m.gguf")), (std::vector<std::string>{file, path("m.gguf")}));
  EXPECT_EQ(paths_in("hf:user/repo"), std::vector<std::string>{"hf:user/repo"});
  EXPECT_TRUE(paths_in("nothing").empty());
  EXPECT_TRUE(paths_in("").empty());
}

}  // namespace
}  // namespace lumen::cli
