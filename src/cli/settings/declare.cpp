#include "cli/settings/declare.h"

#include <algorithm>

#include "base/check.h"
#include "cli/paths/paths.h"
#include "cli/settings/bounds.h"

namespace lumen::cli {
namespace {

// "front windows none" as the parser's list of allowed values.
CLI::Validator choices_of(const Setting& row) {
  std::vector<std::string> words;
  const std::string_view all = row.choices;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(' ', at), all.size());
    words.emplace_back(all.substr(at, end - at));
    at = end + 1;
  }
  return CLI::IsMember(words);
}

}  // namespace

std::string command_of(const CLI::App& app) {
  const CLI::App* const above = app.get_parent();
  if (!above) return {};
  const std::string before = command_of(*above);
  return before.empty() ? app.get_name() : before + " " + app.get_name();
}

CLI::Option* finish_setting(CLI::Option* option, const Setting& row, SettingKind kind) {
  const bool has_bounds = row.least || row.most;
  const bool is_number = kind == SettingKind::whole || kind == SettingKind::real;
  const bool is_of_key = *row.key != '\0';  // values of recipe keys are checked as the key's (train/train_flags.cpp)
  LUMEN_CHECK(!has_bounds || is_number || is_of_key, "{} has bounds, and is no number", row.names);
  option->group(row.heading);
  if (row.shows_default) option->capture_default_str();
  if (row.is_required) option->required();
  if (row.delimiter != '\0') option->delimiter(row.delimiter);
  if (row.takes_one) option->allow_extra_args(false);
  if (row.reads) option->check(reads(*row.reads));
  if (row.writes) option->check(writes(*row.writes));
  if (has_bounds && kind == SettingKind::whole)
    option->check(
        whole(int64_t(row.least.value_or(-double(kMostCount))), int64_t(row.most.value_or(double(kMostCount)))));
  if (has_bounds && kind == SettingKind::real)
    option->check(real(row.least.value_or(-kMostReal), row.most.value_or(kMostReal)));
  if (*row.choices != '\0' && !is_of_key) option->check(choices_of(row));
  if (*row.placeholder != '\0') option->type_name(row.placeholder);
  return option;
}

CLI::Option* add_flag_function(CLI::App& app, std::string_view name, std::function<void(bool)> use) {
  const Setting& row = setting(command_of(app), name);
  const auto count = [use = std::move(use)](int64_t given) { use(given > 0); };
  return finish_setting(app.add_flag_function(row.names, count, row.help), row, SettingKind::flag);
}

void add_switch_function(CLI::App& app, std::string_view name, const std::function<void(bool)>& use) {
  add_flag_function(app, name, use);
  app.add_flag_callback("--no-" + std::string(name.substr(2)), [use] { use(false); })->group("");
}

}  // namespace lumen::cli
