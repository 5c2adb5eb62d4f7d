#include "cli/reference/commands.h"

#include <algorithm>
#include <ranges>

#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

// Splits a type such as "TEXT:{a,b}" into its name and its choices.
void read_type(const std::string& type, OptionEntry* entry) {
  const size_t begin = type.find('{'), end = type.find('}', begin);
  entry->type = type.substr(0, type.find(':'));
  if (begin == std::string::npos || end == std::string::npos) return;
  for (const auto part : std::views::split(std::string_view(type).substr(begin + 1, end - begin - 1), ','))
    entry->choices.emplace_back(part.begin(), part.end());
}

OptionEntry entry_of(const std::string& command, const CLI::Option& option) {
  OptionEntry out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (out.names.empty()) out.names.push_back(option.get_name(true));
  if (option.get_items_expected_max() > 0) read_type(option.get_type_name(), &out);
  out.help = option.get_description();
  out.group = option.get_group();
  out.fallback = option.get_default_str();
  out.is_required = option.get_required();
  out.is_list = option.get_items_expected_max() > 1;
  out.value_is_optional = option.get_items_expected_min() == 0 && option.get_items_expected_max() > 0;
  out.row = find_setting(command, out.names.front());
  return out;
}

CommandEntry describe_as(const CLI::App& app, const std::string& name) {
  CommandEntry out{name, app.get_description(), app.get_footer(), {}, {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() && !option->nonpositional() ? out.arguments : out.options)
        .push_back(entry_of(command_of(app), *option));
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* s) { return !s->get_group().empty(); }))
    out.commands.push_back(describe_as(*sub, name + " " + sub->get_name()));
  return out;
}

}  // namespace

CommandEntry describe(const CLI::App& app) {
  return describe_as(app, app.get_name());
}

const CommandEntry* find_command(const CommandEntry& program, const std::vector<std::string>& words) {
  const CommandEntry* at = &program;
  for (const std::string& word : words) {
    const auto next =
        std::ranges::find_if(at->commands, [&](const CommandEntry& c) { return c.name.ends_with(" " + word); });
    if (next == at->commands.end()) return nullptr;
    at = &*next;
  }
  return at;
}

}  // namespace lumen::cli
