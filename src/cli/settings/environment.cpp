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
    throw usage_error("'{}' is neither true (1, on, yes) nor false (0, off, no)", found.value);
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

}  // namespace

bool has_variables(const CLI::App& command) {
  return !found_for(command).empty();
}

std::vector<FromEnvironment> take_environment(CLI::App& command, const CLI::App& given,
                                              const std::function<std::string(const CLI::ParseError&)>& text) {
  std::vector<FromEnvironment> out;
  for (const Found& found : found_for(command)) {
    const std::string name = found.row->name();
    CLI::Option* const option = command.get_option_no_throw(name);
    if (!option || is_given(given, name) || excludes_given(*option, given)) continue;
    try {
      option->add_result(is_flag(*option) ? flag_value(found) : found.value);
      option->run_callback();
    } catch (const CLI::ParseError& refusal) {
      throw Error(Exit::usage, fmt::format("{}: {}", found.variable, text(refusal)),
                  fmt::format("the environment gives {}; the command line has priority", name));
    } catch (const Error& refusal) {
      throw Error(refusal.code(), fmt::format("{}: {}", found.variable, refusal.what()), refusal.hint());
    }
    out.push_back({found.variable, name, found.value});
  }
  return out;
}

}  // namespace lumen::cli
