// needs: none. Options from environment variables: which have priority, and what is said about wrong values.
#include "cli/settings/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "cli/command.h"
#include "cli/settings/declare.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

using Values = std::map<std::string, std::string>;

// Sets variables as long as it lives.
class Variables {
 public:
  explicit Variables(const Values& values) : values_(values) {
    for (const auto& [name, value] : values_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : values_) ::unsetenv(name.c_str());
  }

 private:
  Values values_;
};

void expect_usage(const std::vector<std::string>& words, const std::vector<std::string>& parts) {
  const Outcome o = lumen(words);
  EXPECT_EQ(o.code, 2) << o.error;
  for (const std::string& part : parts) EXPECT_TRUE(contains(o.error, part)) << part << " is not in: " << o.error;
}

TEST(Environment, AValueReachesTheOption) {
  const Variables set(Values{{"LUMEN_STEPS", "123"}, {"LUMEN_LR", "0.25"}, {"LUMEN_STRICT", "yes"}});
  const Outcome o = lumen({"train", "--print-config"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "steps = 123")) << o.out;
  EXPECT_TRUE(contains(o.out, "learning_rate = 0.25")) << o.out;
  EXPECT_TRUE(contains(o.out, "strict = true")) << o.out;
}

TEST(Environment, TheCommandLineHasPriority) {
  const Variables set(Values{{"LUMEN_STEPS", "123"}, {"LUMEN_LR", "wrong"}, {"LUMEN_STRICT", "1"}});
  const Outcome o = lumen({"train", "--print-config", "--max_steps", "7", "--lr=0.5", "--no-strict"});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_TRUE(contains(o.out, "steps = 7")) << o.out;
  EXPECT_TRUE(contains(o.out, "learning_rate = 0.5")) << o.out;
  EXPECT_FALSE(contains(o.out, "strict = true")) << o.out;
}

TEST(Environment, ItHasPriorityOverARecipe) {
  const Outcome before = lumen({"train", "--recipe", "char", "--print-config"});
  ASSERT_EQ(before.code, 0) << before.error;
  const Variables set(Values{{"LUMEN_STEPS", "123"}});
  const Outcome o = lumen({"train", "--recipe", "char", "--print-config"});
  EXPECT_FALSE(contains(before.out, "steps = 123\n"));
  EXPECT_TRUE(contains(o.out, "steps = 123\n")) << o.out;
}

TEST(Environment, AnOptionThatIsRequiredMayComeFromIt) {
  const Variables set(Values{{"LUMEN_MODEL", "/absent/model.gguf"}});
  for (const char* command : {"run", "chat", "serve", "perplexity"}) {
    const Outcome o = lumen({command});
    EXPECT_EQ(o.code, 1) << command << o.error;
    EXPECT_TRUE(contains(o.error, "/absent/model.gguf")) << command << o.error;
  }
  const Outcome given = lumen({"run", "/absent/other.gguf"});
  EXPECT_TRUE(contains(given.error, "/absent/other.gguf")) << given.error;
}

TEST(Environment, WrongValuesNameTheVariable) {
  const std::vector<std::tuple<std::string, std::string, std::vector<std::string>>> cases = {
      {"LUMEN_THREADS", "many", {"run", "-m", "x"}},       {"LUMEN_THREADS", "5000", {"run", "-m", "x"}},
      {"LUMEN_TOP_P", "1.5", {"chat", "-m", "x"}},         {"LUMEN_CTX_SIZE", "-1", {"run", "-m", "x"}},
      {"LUMEN_NARROW", "often", {"serve", "-m", "x"}},     {"LUMEN_EXACT", "perhaps", {"perplexity", "-m", "x"}},
      {"LUMEN_BOS", "behind", {"perplexity", "-m", "x"}},  {"LUMEN_STEPS", "1.5", {"train", "--print-config"}},
      {"LUMEN_SERVE_PORT", "99999", {"serve", "-m", "x"}},
  };
  for (const auto& [variable, value, words] : cases) {
    const Variables set(Values{{variable, value}});
    expect_usage(words, {variable, value});
  }
}

TEST(Environment, ContradictionsNameTheVariable) {
  const Variables set(Values{{"LUMEN_DRAFT", "4"}});
  expect_usage({"run", "-m", "x", "-p", "a"}, {"--draft", "LUMEN_DRAFT"});
}

TEST(Environment, WhatTheCommandLineExcludesIsNotTaken) {
  const Variables set(Values{{"LUMEN_VERBOSE", "1"}, {"LUMEN_MIROSTAT", "2"}});
  EXPECT_EQ(lumen({"run", "-m", "/absent/x", "-q"}).code, 1);
  const Outcome o = lumen({"run", "-m", "/absent/x", "--top-k", "5"});
  EXPECT_EQ(o.code, 1) << o.error;
}

TEST(Environment, FlagsTakeWords) {
  for (const auto& [value, tunes] :
       std::map<std::string, bool>{{"1", false}, {"On", false}, {"0", true}, {"no", true}}) {
    const Variables set(Values{{"LUMEN_NO_TUNE", value}, {"LUMEN_MMAP", value}});
    Command command, first;
    const auto app = make_app(command), given = make_app(first);
    CLI::App& run = *app->get_subcommand("run");
    const auto taken = take_environment(run, *given->get_subcommand("run"), [](const CLI::ParseError&) { return ""; });
    EXPECT_EQ(taken.size(), 2U);
    EXPECT_EQ(command.shared->tune, tunes) << value;
  }
}

TEST(Environment, HelpAndOtherMistakesComeFirst) {
  const Variables set(Values{{"LUMEN_THREADS", "many"}});
  EXPECT_EQ(lumen({"run", "--help"}).code, 0);
  expect_usage({"run", "--nonsense"}, {"--nonsense"});
  EXPECT_EQ(lumen({"--version"}).code, 0);
}

TEST(Environment, AnEmptyVariableIsNone) {
  const Variables set(Values{{"LUMEN_STEPS", ""}});
  EXPECT_EQ(lumen({"train", "--print-config"}).code, 0);
}

}  // namespace
}  // namespace lumen::cli
