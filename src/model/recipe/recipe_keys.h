// One table of every single-valued key of a recipe: its section and name, its allowed values, and its member of Recipe.
// Reading, printing, bounds checks, and comparing a resumed run with its checkpoint are derived from the rows. Proved
// by tests/model/recipe/recipe_keys_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/structured/toml.h"
#include "model/recipe/recipe.h"

namespace lumen::model {

// What a change of the value affects; checked when a run is resumed.
enum class RecipeEffect {
  training,  // the training steps: only if the user asks for it
  model,     // the model itself: never allowed
  none,      // nothing trained: how often to evaluate or save, output types, paths
};

// A value that is one of a few names.
struct NamedChoice {
  std::string (*get)(const Recipe&);
  void (*set)(Recipe&, const std::string&);  // Error that lists the names
};

struct RecipeKey {
  const char* section;
  const char* key;
  std::variant<double& (*)(Recipe&), int64_t& (*)(Recipe&), uint32_t& (*)(Recipe&), bool& (*)(Recipe&),
               std::string& (*)(Recipe&), std::vector<std::string>& (*)(Recipe&), NamedChoice,
               std::optional<double>& (*)(Recipe&)>  // the last: a missing value gets its default elsewhere
      value;
  double least = 0, most = 0;  // of numbers, inclusive
  RecipeEffect effect = RecipeEffect::training;

  std::string name() const { return std::string(section) + "." + key; }
  bool is_number() const { return value.index() <= 2 || value.index() == 7; }
  bool is_whole() const { return value.index() == 1 || value.index() == 2; }
  bool is_switch() const { return value.index() == 3; }
};

// In the order in which a recipe is printed.
std::span<const RecipeKey> recipe_keys();
// The row of "schedule.learning_rate"; it must exist.
const RecipeKey& recipe_key(const std::string& name);

// The value as TOML writes it; "" when there is none.
std::string value_text(const RecipeKey& key, const Recipe& recipe);
// Reads the key from its section's table, if present. Error with its position when it is out of bounds.
void read_value(const RecipeKey& key, const Toml& section, Recipe& recipe);
// From a flag's value ("1e-3", "cosine", "a,b" for lists). Error (usage) when it is invalid.
void set_value(const RecipeKey& key, const std::string& text, Recipe& recipe);
// Error (usage) when a number is out of its bounds.
void check_value(const RecipeKey& key, const Recipe& recipe);

// "mine.toml:3:9".
std::string place_text(const Place& place);
// The position of a key, or of the section's key that `message` mentions, followed by ": "; "" when no file sets it.
std::string place_of(const Recipe& recipe, const std::string& key);
std::string place_of_section(const Recipe& recipe, const std::string& section, const std::string& message);

// A string as TOML, and a list of them as a TOML array.
std::string quoted(const std::string& text);
std::string quoted_list(const std::vector<std::string>& strings);

}  // namespace lumen::model
