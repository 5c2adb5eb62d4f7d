#include "cli/settings/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

// Options whose variables the part that they configure reads itself, with the same meaning.
constexpr const char* kReadElsewhere[] = {"LUMEN_CACHE", "LUMEN_CACHE_LIMIT", "LUMEN_TRY"};

struct Found {
  const Setting* row;
  std::string variable, value;
};

std::vector<Found> found_for(const CLI::App& command) {
  std::vector<Found> out;
  for (const Setting* row : settings_of(command_of(command))) {
    const std::string variable = row->variable();
    if (variable.empty() || std::ranges::find(kReadElsewhere, variable) != std::end(kReadElsewhere)) continue;
    const char* const value = std::getenv(variable.c_str());
    if (value && *value != '\0') out.push_back({row, variable, value});
  }
  return out;
}

bool is_flag(const CLI::Option& option) {
  return option.get_expected_max() == 0;
}

// "1", "true", "on", "yes" and their opposites; of a flag that only has a --no- spelling the value is that of the
// setting that it switches off.
std::string flag_value(const Found& found) {
  std::string word = found.value;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_one = [&](std::initializer_list<const char*> words) {
    return std::ranges::any_of(words, [&](const char* one) { return word == one; });
  };
  const bool yes = is_one({"1", "true", "on", "yes"});
  if (!yes && !is_one({"0", "false", "off", "no"}))
    throw usage_error("{}: '{}' is neither true (1, on, yes) nor false (0, off, no)", found.variable, found.value);
  const bool negates = std::string_view(found.row->names).starts_with('!');
  return yes != negates ? "true" : "false";
}

// Whether the command line gives the option, or its opposite.
bool is_given(const CLI::App& given, const std::string& name) {
  const CLI::Option* const same = given.get_option_no_throw(name);
  const CLI::Option* const opposite = given.get_option_no_throw("--no-" + name.substr(2));
  return (same && same->count() > 0) || (opposite && opposite->count() > 0);
}

bool excludes_given(const CLI::Option& option, const CLI::App& given) {
  return std::ranges::any_of(option.get_excludes(), [&](const CLI::Option* other) {
    const CLI::Option* const same = given.get_option_no_throw(other->get_name());
    return same && same->count() > 0;
  });
}

// Gives an option its values; Error (usage) that names the source where the option refuses them.
void give(CLI::Option& option, const std::vector<std::string>& values, const std::string& source, const char* giver,
          const std::function<std::string(const CLI::ParseError&)>& text) {
  try {
    for (const std::string& value : values) option.add_result(value);
    option.run_callback();
  } catch (const CLI::ParseError& refusal) {
    throw Error(Exit::usage, fmt::format("{}: {}", source, text(refusal)),
                fmt::format("{} {}; the command line has priority", giver, option.get_name()));
  } catch (const Error& refusal) {
    throw Error(refusal.code(), fmt::format("{}: {}", source, refusal.what()), refusal.hint());
  }
}

}  // namespace

bool has_variables(const CLI::App& command) {
  return !found_for(command).empty();
}

std::vector<TakenValue> take_environment(CLI::App& command, const CLI::App& given,
                                         const std::function<std::string(const CLI::ParseError&)>& text) {
  std::vector<TakenValue> out;
  for (const Found& found : found_for(command)) {
    const std::string name = found.row->name();
    CLI::Option* const option = command.get_option_no_throw(name);
    if (!option || is_given(given, name) || excludes_given(*option, given)) continue;
    give(*option, {is_flag(*option) ? flag_value(found) : found.value}, found.variable, "the environment gives", text);
    out.push_back({TakenValue::Source::environment, found.variable, name, found.value});
  }
  return out;
}

std::vector<TakenValue> take_config(CLI::App& command, const CLI::App& given,
                                    const std::vector<ConfiguredValue>& values,
                                    const std::function<std::string(const CLI::ParseError&)>& text) {
  std::vector<TakenValue> out;
  const CLI::Option* const recipe = command.get_option_no_throw("--recipe");
  const bool has_recipe = recipe && (recipe->count() > 0 || is_given(given, "--recipe"));
  for (const ConfiguredValue& one : values) {
    CLI::Option* const option = command.get_option_no_throw(one.option);
    if (!option || option->count() > 0 || is_given(given, one.option) || excludes_given(*option, given) ||
        excludes_given(*option, command))
      continue;
    const std::string variable = one.row->variable();
    const char* const elsewhere = std::getenv(variable.c_str());
    const bool reads_variable = std::ranges::find(kReadElsewhere, variable) != std::end(kReadElsewhere);
    if ((reads_variable && elsewhere && *elsewhere != '\0') || (has_recipe && *one.row->key != '\0')) continue;
    give(*option, one.values, one.place, "the configuration gives", text);
    std::string joined;
    for (const std::string& value : one.values) joined += (joined.empty() ? "" : ",") + value;
    out.push_back({TakenValue::Source::configuration, one.place, one.option, joined});
  }
  return out;
}

}  // namespace lumen::cli
