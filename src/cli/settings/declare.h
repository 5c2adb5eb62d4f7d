// Declares options of the command line by their rows.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "cli/settings/settings.h"

namespace lumen::cli {

// "bench kernels": a command without the program's own name; empty for the program.
std::string command_of(const CLI::App& app);

// Adds the option of that name, whose values go to `value`. Flags go to a bool; a row with an upper bound or a lower
// one needs numbers. Returns the option, for what depends on others (excludes, needs).
template <class T>
CLI::Option* add_setting(CLI::App& app, std::string_view name, T& value);

// The same for several: a name and a value, the next name and its value, ..
template <class T, class... More>
void add_settings(CLI::App& app, std::string_view name, T& value, More&&... more);

// The same for an option whose values go to `use`, and for a flag: `use` gets false for a --no- spelling, and where an
// environment variable says so.
template <class T>
CLI::Option* add_setting_function(CLI::App& app, std::string_view name, const std::function<void(const T&)>& use);
CLI::Option* add_flag_function(CLI::App& app, std::string_view name, std::function<void(bool)> use);
// The same for a flag that has a --no- spelling too, which the help does not show.
void add_switch_function(CLI::App& app, std::string_view name, const std::function<void(bool)>& use);

// ---- Nothing below is for callers ----

enum class SettingKind { flag, whole, real, text };

CLI::Option* finish_setting(CLI::Option* option, const Setting& row, SettingKind kind);

template <class T>
struct SettingElement {
  using type = T;
};
template <class T>
struct SettingElement<std::vector<T>> : SettingElement<T> {};
template <class T>
struct SettingElement<std::optional<T>> : SettingElement<T> {};

template <class T>
constexpr SettingKind kind_of_setting() {
  using Element = typename SettingElement<T>::type;
  return std::is_same_v<T, bool>             ? SettingKind::flag
         : std::is_integral_v<Element>       ? SettingKind::whole
         : std::is_floating_point_v<Element> ? SettingKind::real
                                             : SettingKind::text;
}

template <class T>
CLI::Option* add_setting(CLI::App& app, std::string_view name, T& value) {
  const Setting& row = setting(command_of(app), name);
  if constexpr (std::is_same_v<T, bool>)
    return finish_setting(app.add_flag(row.names, value, row.help), row, SettingKind::flag);
  else
    return finish_setting(app.add_option(row.names, value, row.help), row, kind_of_setting<T>());
}

template <class T, class... More>
void add_settings(CLI::App& app, std::string_view name, T& value, More&&... more) {
  add_setting(app, name, value);
  if constexpr (sizeof...(More) > 0) add_settings(app, more...);
}

template <class T>
CLI::Option* add_setting_function(CLI::App& app, std::string_view name, const std::function<void(const T&)>& use) {
  const Setting& row = setting(command_of(app), name);
  return finish_setting(app.add_option_function<T>(row.names, use, row.help), row, kind_of_setting<T>());
}

}  // namespace lumen::cli
