// The table of options as JSON, from which tools/option_table.py makes docs/reference/options.md and the signatures of
// the Python package.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/reference/commands.h"
#include "model/recipe/recipe_keys.h"

namespace lumen::cli {
namespace {

using nlohmann::ordered_json;

// By row the entries of all commands below `command`.
void collect(const CommandEntry& command, std::vector<std::pair<std::string, const OptionEntry*>>* out) {
  const size_t space = command.name.find(' ');
  const std::string name = space == std::string::npos ? "" : command.name.substr(space + 1);
  for (const std::vector<OptionEntry>* list : {&command.arguments, &command.options})
    for (const OptionEntry& entry : *list)
      if (entry.row) out->emplace_back(name, &entry);
  for (const CommandEntry& sub : command.commands) collect(sub, out);
}

// A key of training recipes that no option sets to any value of it.
ordered_json entry_of(const model::recipe::RecipeKey& key) {
  ordered_json out = {{"names", ordered_json::array({key.name()})},
                      {"commands", ordered_json::array({"train"})},
                      {"help", key.help},
                      {"heading", "Recipe"},
                      {"key", key.name()}};
  if (key.is_number()) out["least"] = key.least, out["most"] = key.most;
  if (!key.choices.empty()) out["choices"] = key.names();
  if (const std::string value = model::recipe::default_text(key); !value.empty()) out["default"] = value;
  return out;
}

}  // namespace

std::string option_table(const CommandEntry& command) {
  std::vector<std::pair<std::string, const OptionEntry*>> all;
  collect(command, &all);
  ordered_json table = ordered_json::array();
  for (const Setting& row : settings()) {
    ordered_json commands = ordered_json::array();
    const OptionEntry* first = nullptr;
    for (const auto& [name, entry] : all) {
      if (entry->row != &row) continue;
      if (!first) first = entry;
      commands.push_back(name);
    }
    if (!first) continue;
    ordered_json out = {
        {"names", first->names}, {"commands", commands}, {"help", first->help}, {"heading", first->group}};
    if (!first->type.empty()) out["type"] = first->type;
    if (!first->choices.empty()) out["choices"] = first->choices;
    if (!first->fallback.empty()) out["default"] = first->fallback;
    if (row.least) out["least"] = *row.least;
    if (row.most) out["most"] = *row.most;
    if (first->is_required) out["required"] = true;
    if (first->is_list) out["list"] = true;
    if (first->value_is_optional) out["optional_value"] = true;
    if (row.reads || row.writes) out["path"] = true;
    if (const std::string variable = row.variable(); !variable.empty()) out["variable"] = variable;
    if (*row.key) out["key"] = row.key;
    if (*row.api) out["api"] = row.api;
    table.push_back(std::move(out));
  }
  const auto has_train = std::ranges::any_of(all, [](const auto& one) { return one.first == "train"; });
  for (const model::recipe::RecipeKey& key : model::recipe::recipe_keys())
    if (has_train && !std::ranges::any_of(settings(), [&](const Setting& row) {
          return key.name() == row.key && *row.key_value == '\0';
        }))
      table.push_back(entry_of(key));
  return table.dump(1) + "\n";
}

}  // namespace lumen::cli
