// needs: none. The table of options: its rows are unique, the parser and the help have what they say, and what is
// declared elsewhere of the same options agrees.
#include "cli/settings/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "cli/command.h"
#include "cli/settings/bounds.h"
#include "cli/settings/declare.h"
#include "model/recipe/recipe_keys.h"
#include "tests/cli/outcome.h"

namespace lumen::cli {
namespace {

std::vector<std::string> split(const std::string& text, char sign) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, sign);) out.push_back(part);
  return out;
}

void each_command(const CLI::App& app, const std::function<void(const CLI::App&)>& see) {
  see(app);
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) each_command(*sub, see);
}

// The commands by their names: "bench kernels".
std::map<std::string, const CLI::App*> commands_of(const CLI::App& app) {
  std::map<std::string, const CLI::App*> out;
  each_command(app, [&](const CLI::App& command) { out[command_of(command)] = &command; });
  return out;
}

std::string text_of(const std::string& file) {
  std::ifstream in(std::string(LUMEN_SOURCE_DIR) + "/" + file);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

TEST(Settings, ACommandHasEachNameOnce) {
  std::map<std::string, std::set<std::string>> seen;
  size_t names = 0;
  for (const Setting& row : settings())
    for (const std::string& command : split(row.commands, ','))
      for (const std::string& name : row.spellings()) {
        EXPECT_TRUE(seen[command].insert(name).second) << command << " has " << name << " twice";
        ++names;
      }
  EXPECT_GT(names, 900U);
  for (const auto& [command, own] : seen)
    for (const std::string& name : own)
      EXPECT_FALSE(command != "*" && seen["*"].contains(name)) << command << " has " << name << " of every command";
}

TEST(Settings, ACommandHasEachVariableOnce) {
  std::map<std::string, std::set<std::string>> seen;
  for (const Setting& row : settings())
    for (const std::string& command : split(row.commands, ',')) {
      const std::string variable = row.variable();
      if (variable.empty()) continue;
      EXPECT_TRUE(variable.starts_with("LUMEN_")) << variable;
      EXPECT_TRUE(seen[command].insert(variable).second) << command << " has " << variable << " twice";
      EXPECT_FALSE(command != "*" && seen["*"].contains(variable)) << command << " " << variable;
    }
}

// Variables that other parts of the program read, with another meaning than that of an option.
TEST(Settings, VariablesOfOtherPartsBelongToNoOption) {
  for (const Setting& row : settings())
    for (const char* other : {"LUMEN_MEMORY", "LUMEN_PORT", "LUMEN_TOKEN", "LUMEN_TRACE"})
      EXPECT_NE(row.variable(), other) << row.names;
}

TEST(Settings, WhatIsWrittenHasAVariableOnlyWhereTheRowSaysSo) {
  EXPECT_EQ(setting("embed", "--output").variable(), "");
  EXPECT_EQ(setting("quantize", "--overwrite").variable(), "");
  EXPECT_EQ(setting("train", "--out").variable(), "");
  EXPECT_EQ(setting("quantize", "output").variable(), "");
  EXPECT_EQ(setting("run", "--no-mmap").variable(), "LUMEN_MMAP");
  EXPECT_EQ(setting("perplexity", "-c").variable(), "LUMEN_WINDOW_SIZE");
}

TEST(Settings, CommandsHaveTheirRowsAndTheHelpListsThem) {
  Command command;
  const auto app = make_app(command);
  const auto commands = commands_of(*app);
  std::map<std::string, std::string> helps;
  size_t options = 0;
  for (const Setting& row : settings())
    for (const std::string& name : split(row.commands, ',')) {
      if (name == "*") continue;
      ASSERT_TRUE(commands.contains(name)) << name << " of " << row.names << " is no command";
      const CLI::App& at = *commands.at(name);
      const CLI::Option* const option = at.get_option_no_throw(row.name());
      ASSERT_TRUE(option) << "lumen " << name << " has no " << row.name();
      EXPECT_EQ(option->get_required(), row.is_required) << name << " " << row.name();
      EXPECT_EQ(!option->get_default_str().empty() || !row.shows_default, true) << name << " " << row.name();
      if (!helps.contains(name)) helps[name] = at.help();
      const std::string& help = helps[name];
      for (const std::string& spelled : row.spellings()) EXPECT_TRUE(contains(help, spelled)) << name << " " << spelled;
      ++options;
    }
  EXPECT_GT(options, 700U);
}

TEST(Settings, EveryOptionOfEveryCommandIsARow) {
  Command command;
  const auto app = make_app(command);
  const std::set<std::string> others = {"--help", "--help-all", "--version"};
  size_t options = 0;
  for (const auto& [name, at] : commands_of(*app))
    for (const CLI::Option* option : at->get_options()) {
      if (option->get_group().empty() || others.contains(option->get_name())) continue;  // hidden
      EXPECT_TRUE(find_setting(name, option->get_name())) << "lumen " << name << " " << option->get_name();
      ++options;
    }
  EXPECT_GT(options, 900U);
}

// Commands whose options have names of others' have variables of their own.
TEST(Settings, VariablesNameTheCommandWhereRowsSaySo) {
  EXPECT_EQ(setting("doctor", "--all").variable(), "LUMEN_DOCTOR_ALL");
  EXPECT_EQ(setting("bench kernels", "--rows").variable(), "LUMEN_BENCH_ROWS");
  EXPECT_NE(setting("bench kernels", "--shape").variable(), setting("bench", "--shape").variable());
  EXPECT_EQ(setting("recover", "--check-chunks").variable(), "LUMEN_REPAIR_CHECK_CHUNKS");
  EXPECT_EQ(setting("compile", "--out").variable(), "");
  for (const Setting& row : settings()) {
    if (!row.names_command || row.own_variable || row.variable().empty()) continue;
    for (const std::string& command : split(row.commands, ',')) {
      const std::string word = command.substr(0, command.find(' ')),
                        own = std::string(row.commands).substr(0, word.size());
      EXPECT_EQ(word, own) << row.names << " is of " << row.commands << ", and its variable is " << row.variable();
    }
  }
}

// The parser has the bounds of the rows: the numbers next to them are refused, and defaults are not.
TEST(Settings, NumbersBesideTheBoundsAreRefused) {
  Command command;
  const auto app = make_app(command);
  const auto commands = commands_of(*app);
  size_t tried = 0;
  for (const Setting& row : settings()) {
    if ((!row.least && !row.most) || *row.key) continue;
    EXPECT_LE(row.least.value_or(-kMostReal), row.most.value_or(kMostReal)) << row.names;
    for (const std::string& name : split(row.commands, ',')) {
      const CLI::App& at = name == "*" ? *commands.at("run") : *commands.at(name);
      const CLI::Option& option = *at.get_option_no_throw(row.name());
      const std::string type = option.get_type_name();
      const bool is_whole = row.least.value_or(0) == std::floor(row.least.value_or(0)) && !contains(type, "FLOAT");
      for (const double beside : {row.least.value_or(0) - 1, row.most.value_or(0) + 1}) {
        if ((beside < 0 ? !row.least : !row.most) || std::abs(beside) > 1e14) continue;
        std::vector<std::string> words = split(command_of(at), ' ');
        if (!row.name().starts_with("--")) continue;
        words.push_back(row.name() + "=" + (is_whole ? fmt::format("{:.0f}", beside) : fmt::format("{}", beside)));
        const Outcome o = lumen(words);
        EXPECT_EQ(o.code, 2) << fmt::format("{}", fmt::join(words, " ")) << o.error;
        EXPECT_TRUE(contains(o.error, row.name() + ": ")) << fmt::format("{}", fmt::join(words, " ")) << o.error;
        ++tried;
      }
      for (std::string value : split(option.get_default_str(), ',')) {
        std::erase_if(value, [](char c) { return c == '[' || c == ']'; });
        const double number = value.empty() ? row.least.value_or(0) : std::strtod(value.c_str(), nullptr);
        EXPECT_GE(number, row.least.value_or(-kMostReal)) << name << " " << row.names;
        EXPECT_LE(number, row.most.value_or(kMostReal)) << name << " " << row.names;
      }
    }
  }
  EXPECT_GT(tried, 300U);
}

// Long commands show some everyday options first, and the rest under headings.
TEST(Settings, HelpOfLongCommandsBeginsWithEverydayOptions) {
  Command command;
  const auto app = make_app(command);
  for (const auto& [name, at] : commands_of(*app)) {
    const auto shown = at->get_options([](const CLI::Option* o) { return !o->get_group().empty(); });
    if (shown.size() < 40 || settings_of(name).size() < 40) continue;
    const auto everyday =
        std::ranges::count_if(shown, [](const CLI::Option* o) { return o->get_group() == kEveryday; });
    EXPECT_LE(everyday, 20) << name;
    EXPECT_GE(everyday, 5) << name;
    const std::string help = at->help();
    const size_t first = help.find(std::string("\n") + kEveryday + ":\n");
    ASSERT_NE(first, std::string::npos) << name;
    for (const std::string& group : at->get_groups())
      if (group != kEveryday && !group.empty()) {
        EXPECT_GT(help.find("\n" + group + ":\n"), first) << name << " " << group;
      }
    EXPECT_NE(help.find("\nCommon:\n"), std::string::npos) << name;
  }
}

TEST(Settings, KeysAreThoseOfRecipes) {
  std::set<std::string> known;
  for (const model::recipe::RecipeKey& key : model::recipe::recipe_keys()) known.insert(key.name());
  size_t keys = 0;
  for (const Setting& row : settings()) {
    if (!*row.key) continue;
    EXPECT_TRUE(known.contains(row.key)) << row.key;
    EXPECT_STREQ(row.commands, "train");
    ++keys;
  }
  EXPECT_GT(keys, 80U);
}

// A key is said once, in recipe_keys.def: what an option of it has is the key's.
TEST(Settings, OptionsOfKeysAreTheKeys) {
  Command command;
  const auto app = make_app(command);
  const CLI::App& train = *commands_of(*app).at("train");
  std::map<std::string, size_t> options;
  for (const Setting& row : settings()) {
    if (!*row.key) continue;
    const model::recipe::RecipeKey& key = model::recipe::recipe_key(row.key);
    if (*row.key_value) {  // a flag for one value, which the key takes
      model::recipe::Recipe r;
      EXPECT_NO_THROW(model::recipe::set_value(key, row.key_value, r)) << row.names;
      EXPECT_NE(model::recipe::default_text(key), row.key_value) << row.names << " changes nothing";
      continue;
    }
    EXPECT_EQ(++options[row.key], 1U) << row.key << " has a second row: " << row.names;
    EXPECT_STREQ(row.help, key.help) << row.key;
    EXPECT_EQ(row.choices, key.choices) << row.key;
    EXPECT_EQ(row.least, key.is_number() ? std::optional(key.least) : std::nullopt) << row.key;
    EXPECT_EQ(row.most, key.is_number() ? std::optional(key.most) : std::nullopt) << row.key;
    const CLI::Option* const option = train.get_option_no_throw(row.name());
    ASSERT_TRUE(option) << row.name();
    if (key.is_switch()) continue;
    EXPECT_EQ(option->get_default_str(), model::recipe::default_text(key)) << row.key;
    for (const std::string& name : key.names())
      EXPECT_TRUE(contains(option->get_type_name(), name)) << row.key << " " << name;
  }
  EXPECT_GT(options.size(), 80U);
}

TEST(Settings, TheTableHasKeysWithoutOptions) {
  const Outcome all = lumen({"manual", "--form", "json"});
  for (const model::recipe::RecipeKey& key : model::recipe::recipe_keys())
    EXPECT_TRUE(contains(all.out, "\"key\": \"" + key.name() + "\"")) << key.name();
}

// The C interface documents each option that a row says is the same.
TEST(Settings, NamesOfTheInterfaceAreInItsHeader) {
  const std::string header = text_of("include/lumen.h");
  std::set<std::string> seen;
  for (const Setting& row : settings())
    for (const std::string& name : split(row.api, ',')) {
      EXPECT_TRUE(seen.insert(name).second) << name << " is in two rows";
      EXPECT_TRUE(contains(header, "\"" + name.substr(name.find('.') + 1) + "\"")) << name;
      EXPECT_EQ(&api_setting(name), &row);
    }
  EXPECT_GT(seen.size(), 30U);
}

TEST(Settings, TheTableAsJson) {
  const Outcome all = lumen({"manual", "--form", "json"});
  ASSERT_EQ(all.code, 0) << all.error;
  EXPECT_TRUE(contains(all.out, "\"variable\": \"LUMEN_THREADS\""));
  EXPECT_TRUE(contains(all.out, "\"key\": \"schedule.learning_rate\""));
  const Outcome run = lumen({"manual", "run", "--form", "json"});
  EXPECT_TRUE(contains(run.out, "\"--top-k\""));
  EXPECT_FALSE(contains(run.out, "\"--imatrix\""));
}

}  // namespace
}  // namespace lumen::cli
