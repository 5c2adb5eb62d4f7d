// Every single-valued key of a recipe, from the rows of recipe_keys.def: its section and name, its allowed values, and
// its member of Recipe. Reading, printing, bounds checks, and comparing a resumed run with its checkpoint are derived
// from the rows. Proved by tests/model/recipe/recipe_keys_test.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/structured/toml.h"
#include "model/recipe/recipe.h"

namespace lumen::model::recipe {

// What a change of the value affects; checked when a run is resumed.
enum class RecipeEffect {
  training,  // the training steps: only if the user asks for it
  model,     // the model itself: never allowed
  none,      // nothing trained: how often to evaluate or save, output types, paths
};

// A text with a parser of its own.
struct NamedChoice {
  std::string (*get)(const Recipe&);
  void (*set)(Recipe&, const std::string&);  // Error that says what is allowed
};

struct RecipeKey {
  const char* section;
  const char* key;
  std::variant<double& (*)(Recipe&), int64_t& (*)(Recipe&), uint32_t& (*)(Recipe&), bool& (*)(Recipe&),
               std::string& (*)(Recipe&), std::vector<std::string>& (*)(Recipe&), NamedChoice,
               std::optional<double>& (*)(Recipe&)>  // the last: a missing value gets its default elsewhere
      value;
  double least, most;   // of numbers, inclusive
  std::string choices;  // the allowed texts, separated by blanks; "": any that the key's parser takes
  RecipeEffect effect;
  const char* help;  // of its option, too

  std::string name() const { return std::string(section) + "." + key; }
  bool is_number() const { return value.index() <= 2 || value.index() == 7; }
  bool is_whole() const { return value.index() == 1 || value.index() == 2; }
  bool is_switch() const { return value.index() == 3; }
  std::vector<std::string> names() const;  // the choices
};

// In the order in which a recipe is printed.
std::span<const RecipeKey> recipe_keys();
// The row of "schedule.learning_rate"; it must exist.
const RecipeKey& recipe_key(const std::string& name);

// The value as TOML writes it; "" when there is none.
std::string value_text(const RecipeKey& key, const Recipe& recipe);
// Reads the key from its section's table, if present. Error with its position when it is out of bounds.
void read_value(const RecipeKey& key, const Toml& section, Recipe& recipe);
// Why a flag's text is no number of the key ("must be 1 to 256, not 300"); "" where it is one, and for other keys.
std::string problem_of(const RecipeKey& key, const std::string& text);
// From a flag's value ("1e-3", "cosine", "a,b" for lists). Error (usage) when it is invalid.
void set_value(const RecipeKey& key, const std::string& text, Recipe& recipe);
// The value that holds where neither recipe nor option gives one, as an option takes it; "" when there is none.
std::string default_text(const RecipeKey& key);
// Error (usage) when a number is out of its bounds, or a text none of the key's names.
void check_value(const RecipeKey& key, const Recipe& recipe);

// "mine.toml:3:9".
std::string place_text(const Place& place);
// The position of a key, or of the section's key that `message` mentions, followed by ": "; "" when no file sets it.
std::string place_of(const Recipe& recipe, const std::string& key);
std::string place_of_section(const Recipe& recipe, const std::string& section, const std::string& message);

// A string as TOML, and a list of them as a TOML array.
std::string quoted(const std::string& text);
std::string quoted_list(const std::vector<std::string>& strings);

}  // namespace lumen::model::recipe
