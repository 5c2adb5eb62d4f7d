// needs: none. Every key of a recipe: read, printed, bounded and set by a flag's text alike.
#include "model/recipe/recipe_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace lumen::model::recipe {
namespace {

TEST(RecipeKeys, HaveOneNameEach) {
  std::set<std::string> names;
  for (const RecipeKey& key : recipe_keys()) EXPECT_TRUE(names.insert(key.name()).second) << key.name();
  EXPECT_EQ(names.count("schedule.learning_rate"), 1U);
}

// The rows of a section follow each other: printed recipes have each section once.
TEST(RecipeKeys, SectionsAreWhole) {
  std::set<std::string> ended;
  std::string section;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.section == section) continue;
    EXPECT_FALSE(ended.contains(key.section)) << key.section;
    ended.insert(section);
    section = key.section;
  }
}

// The least and the most are allowed, by files and by flags; what lies outside is refused by both and named.
TEST(RecipeKeys, NumbersAreBounded) {
  for (const RecipeKey& key : recipe_keys()) {
    if (!key.is_number()) continue;
    ASSERT_LT(key.least, key.most) << key.name();
    const auto file = [&](double value) {
      const std::string text =
          key.is_whole() ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{:e}", value);
      return Toml::parse(fmt::format("[{}]\n{} = {}\n", key.section, key.key, text), "test");
    };
    for (const double value : {key.least, key.most}) {
      Recipe by_file, by_flag;
      read_value(key, *file(value).table(key.section), by_file);
      set_value(key, fmt::format("{}", value), by_flag);
      EXPECT_EQ(value_text(key, by_file), value_text(key, by_flag)) << key.name();
      EXPECT_NO_THROW(check_value(key, by_file)) << key.name();
    }
    Recipe r;
    const double beyond = key.most * 2 + 1;
    EXPECT_THROW(set_value(key, fmt::format("{}", beyond), r), Error) << key.name();
    EXPECT_THROW(set_value(key, "nan", r), Error) << key.name();
    EXPECT_THROW(set_value(key, "7x", r), Error) << key.name();
    try {
      read_value(key, *file(beyond).table(key.section), r);
      ADD_FAILURE() << key.name();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(key.key), std::string::npos) << e.what();
    }
  }
}

// A default is a value that the key takes, and every key says what it is.
TEST(RecipeKeys, DefaultsAreAllowed) {
  for (const RecipeKey& key : recipe_keys()) {
    EXPECT_GT(std::string_view(key.help).size(), 5U) << key.name();
    EXPECT_NO_THROW(check_value(key, {})) << key.name();
    const std::string text = default_text(key);
    if (text.empty()) continue;
    Recipe r;
    EXPECT_NO_THROW(set_value(key, text, r)) << key.name();
    EXPECT_EQ(value_text(key, r), value_text(key, {})) << key.name();
  }
}

TEST(RecipeKeys, TextsAndSwitches) {
  for (const RecipeKey& key : recipe_keys()) {
    Recipe r;
    if (key.is_switch()) {
      set_value(key, "true", r);
      EXPECT_EQ(value_text(key, r), "true") << key.name();
      EXPECT_THROW(set_value(key, "yes", r), Error) << key.name();
    } else if (!key.choices.empty()) {
      for (const std::string& name : key.names()) {
        set_value(key, name, r);
        EXPECT_NO_THROW(check_value(key, r)) << key.name() << " " << name;
        EXPECT_NE(value_text(key, r).find(name), std::string::npos) << key.name();
      }
      EXPECT_THROW(set_value(key, "no such choice", r), Error) << key.name();
      if (!std::holds_alternative<NamedChoice>(key.value) || key.name() == "ranks.shard") {
        EXPECT_THROW(check_value(key, r), Error) << key.name();
      }
      const bool is_list = std::holds_alternative<std::vector<std::string>& (*)(Recipe&)>(key.value);
      const Toml file = Toml::parse(
          fmt::format("[{}]\n{} = {}\n", key.section, key.key, is_list ? R"(["no such"])" : R"("no such")"), "test");
      try {
        read_value(key, *file.table(key.section), r);
        ADD_FAILURE() << key.name();
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("test:2:"), std::string::npos) << e.what();
      }
    } else if (std::holds_alternative<std::string& (*)(Recipe&)>(key.value)) {
      set_value(key, "a \"b\"\n", r);
      const Toml read = Toml::parse(fmt::format("[{}]\n{} = {}\n", key.section, key.key, value_text(key, r)), "test");
      Recipe back;
      read_value(key, *read.table(key.section), back);
      EXPECT_EQ(value_text(key, back), value_text(key, r)) << key.name();
    } else if (std::holds_alternative<std::vector<std::string>& (*)(Recipe&)>(key.value)) {
      set_value(key, "a,b", r);
      EXPECT_EQ(value_text(key, r), R"(["a", "b"])") << key.name();
    } else if (std::holds_alternative<NamedChoice>(key.value)) {
      EXPECT_THROW(set_value(key, "no such choice", r), Error) << key.name();
    }
  }
}

}  // namespace
}  // namespace lumen::model::recipe
