#include "cli/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/messages/spelling.h"
#include "base/place.h"
#include "cli/settings/settings.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAll = "all";
constexpr const char* kFolders = "model-folders";
constexpr const char* kAliases = "aliases";
constexpr uint64_t kMostConfig = uint64_t{1} << 20;  // bytes

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// "~/models" with the user's home.
fs::path expanded(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  return fs::path(variable("HOME")) / path.substr(std::min<size_t>(path.size(), 2));
}

// The commands of the table of options, with the first word of those of two words.
std::set<std::string> commands_of_table() {
  std::set<std::string> out;
  for (const Setting& row : settings()) {
    std::string word;
    for (const char* c = row.commands;; ++c) {
      if (*c == ',' || *c == '\0') {
        if (word != "*") out.insert(word.substr(0, word.find(' ')));
        if (!word.empty() && word != "*") out.insert(word);
        word.clear();
        if (*c == '\0') break;
      } else {
        word += *c;
      }
    }
  }
  return out;
}

// The long names of options that a command (empty: any) has, without dashes.
std::vector<std::string> keys_of(const std::string& command) {
  std::vector<std::string> out;
  for (const Setting& row : settings())
    if (command.empty() || row.is_of(command))
      for (const std::string& name : row.spellings())
        if (name.starts_with("--")) out.push_back(name.substr(2));
  return out;
}

const Setting* find_row(const std::string& command, const std::string& key) {
  if (!command.empty()) return find_setting(command, "--" + key);
  for (const Setting& row : settings()) {
    const std::vector<std::string> names = row.spellings();
    if (std::ranges::find(names, "--" + key) != names.end()) return &row;
  }
  return nullptr;
}

// Whether "--no-x" of a row with "!--no-x" is meant, whose value is the opposite of the setting's.
bool is_opposite(const Setting& row, const std::string& key) {
  return ("," + std::string(row.names) + ",").find(",!--" + key + ",") != std::string::npos;
}

}  // namespace

fs::path config_file() {
  const std::string own = variable("LUMEN_CONFIG");
  if (own == "off") return {};
  if (!own.empty()) return own;
  if (const std::string folder = variable("XDG_CONFIG_HOME"); !folder.empty())
    return fs::path(folder) / "lumen" / "config.toml";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".config" / "lumen" / "config.toml";
}

Config Config::of_user(const std::vector<std::string>& commands) {
  const fs::path file = config_file();
  std::error_code failure;
  if (file.empty() || (variable("LUMEN_CONFIG").empty() && !fs::exists(file, failure))) return {};
  return Config(read_file(file, kMostConfig), file.string(), commands);
}

Config::Config(std::string text, const std::string& name, const std::vector<std::string>& commands) {
  const Toml top = Toml::parse(std::move(text), name, kMostConfig);
  std::set<std::string> tables = commands_of_table();
  tables.insert(commands.begin(), commands.end());
  std::vector<std::string> known(tables.begin(), tables.end());
  known.insert(known.end(), {kAll, kFolders, kAliases});
  for (const std::string& key : top.keys()) {
    if (key == kFolders || key == kAliases) continue;
    if (std::ranges::find(known, key) == known.end()) {
      const bool is_option = find_row("", key) != nullptr;
      throw error_at(top.place(key), fmt::format("'{}' is neither a command nor a key of this file", key),
                     is_option
                         ? std::string("options of all commands belong to [all], those of one command to its name")
                         : did_you_mean(key, known, "tables have the names of commands, or [all] or [aliases]"));
    }
    const std::optional<Toml> table = top.table(key);
    if (table) add_table(*table, key == kAll ? "" : key, known);
  }
  read_names(top);
}

void Config::add_table(const Toml& table, const std::string& command, const std::vector<std::string>& commands) {
  for (const std::string& key : table.keys()) {
    const std::string inner = command + " " + key;
    const bool is_command = !command.empty() && std::ranges::find(commands, inner) != commands.end();
    if (is_command)
      add_table(*table.table(key), inner, commands);
    else
      add_value(table, command, key);
  }
}

void Config::add_value(const Toml& table, const std::string& command, const std::string& key) {
  const Place place = table.place(key);
  const Setting* const row = find_row(command, key);
  if (!row)
    throw error_at(
        place,
        command.empty() ? fmt::format("no command has an option --{}", key)
                        : fmt::format("`lumen {}` has no option --{}", command, key),
        did_you_mean(key, keys_of(command), "keys are long options without their dashes, as in ctx-size = 4096"));
  if (row->variable().empty())
    throw error_at(place, fmt::format("--{} is an option of the command line alone", key),
                   "options that name outputs, replace files or are for a single use have no key");
  Value out{command,
            key,
            {row->name(),
             fmt::format("{}:{}", place.source ? place.source->name : "config.toml", line_column(place).line),
             {},
             row}};
  const auto opposite = [&](bool value) { return value != is_opposite(*row, key) ? "true" : "false"; };
  switch (table.kind(key)) {
    case Toml::Kind::boolean:
      out.value.values = {opposite(table.boolean(key))};
      break;
    case Toml::Kind::integer:
      out.value.values = {std::to_string(table.integer(key))};
      break;
    case Toml::Kind::number:
      out.value.values = {fmt::format("{}", table.number(key))};
      break;
    case Toml::Kind::text:
      out.value.values = {table.text(key)};
      break;
    case Toml::Kind::array:
      out.value.values = table.texts(key);
      break;
    default:
      throw error_at(place, fmt::format("the value of {} cannot be that of an option", key),
                     "a string, a number, true, false, or a list of strings");
  }
  values_.push_back(std::move(out));
}

void Config::read_names(const Toml& top) {
  for (const std::string& folder : top.texts(kFolders)) names_.folders.push_back(expanded(folder));
  const std::optional<Toml> aliases = top.table(kAliases);
  if (!aliases) return;
  for (const std::string& alias : aliases->keys()) {
    const std::string target = aliases->text(alias);
    if (!model::file::is_plain_name(alias))
      throw error_at(aliases->place(alias), fmt::format("'{}' cannot be an alias", alias),
                     "letters, digits, '-', '_' and '.' can");
    if (target.starts_with(model::file::kHubPrefix)) {
      try {
        (void)model::file::parse_hub_name(target);
      } catch (const Error& wrong) {
        throw error_at(aliases->place(alias), wrong.what(), wrong.hint());
      }
    }
    names_.aliases[alias] = target.starts_with(model::file::kHubPrefix) ? target : expanded(target).string();
  }
}

std::vector<ConfiguredValue> Config::values_for(const std::string& command) const {
  std::vector<ConfiguredValue> out;
  std::set<std::string> taken;
  for (const bool own : {true, false})
    for (const Value& one : values_) {
      if (own ? one.command != command : !one.command.empty()) continue;
      const Setting* const row = find_setting(command, "--" + one.key);
      if (row && taken.insert(row->name()).second) out.push_back(one.value), out.back().row = row;
    }
  return out;
}

}  // namespace lumen::cli
