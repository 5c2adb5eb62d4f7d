#include "cli/numbers.h"

#include <fmt/format.h>

#include <cfloat>
#include <cmath>
#include <string>

#include "base/error.h"

namespace lumen::cli {
namespace {

// True for "INT", "INT:from 1", "INT ...", and not for "INTERVAL".
bool is_type(const std::string& name, std::string_view type) {
  return name.starts_with(type) && (name.size() == type.size() || std::isalnum(name[type.size()]) == 0);
}

// Splits "BEFORE sign AFTER"; everything goes to the first part where the sign is missing.
struct Parts {
  std::string_view before, behind;
};
Parts parted(std::string_view text, std::string_view sign) {
  const size_t at = text.find(sign);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + sign.size())};
}

// Rewords a validator's message. Our own validators (numbers.h and the commands') already give full sentences.
std::string check_text(std::string_view option, std::string_view told) {
  if (const auto [given, range] = parted(told, " not in range "); told.starts_with("Value ") && !range.empty()) {
    const auto [least, most] = parted(range, " to ");
    return fmt::format("{}: {} is not from {} to {}", option, given.substr(6), least, most);
  }
  if (auto [given, names] = parted(told, " not in {"); names.ends_with('}')) {
    names.remove_suffix(1);
    std::string list;
    for (const char c : names) list += c == ',' ? std::string(", ") : std::string(1, c);
    return fmt::format("{}: '{}' is none of {}", option, given, list);
  }
  return fmt::format("{}: {}", option, told);
}

}  // namespace

std::optional<std::pair<int64_t, int64_t>> two_counts(std::string_view text, char sign) {
  const size_t at = text.find(sign);
  if (at == std::string_view::npos) return std::nullopt;
  std::string first(text.substr(0, at)), second(text.substr(at + 1));
  for (std::string* count : {&first, &second})
    if (!check_whole(*count, 1, INT32_MAX).empty()) return std::nullopt;
  return std::pair<int64_t, int64_t>(std::stoll(first), std::stoll(second));
}

void guard_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() == 0 || option->get_type_size() == 0) continue;  // a flag
    const std::string type = option->get_type_name();
    // The parser's own sign checks print the largest double digit by digit, so they are replaced.
    const bool positive = type.find(":POSITIVE") != std::string::npos;
    const bool not_negative = positive || type.find(":NONNEGATIVE") != std::string::npos || is_type(type, "UINT");
    const int64_t least = positive ? 1 : not_negative ? 0 : -kMostCount;
    const double least_real = positive ? DBL_MIN : not_negative ? 0 : -kMostReal;
    // No description: the help shows the option's own bounds.
    if (is_type(type, "INT") || is_type(type, "UINT"))
      option->transform(
          CLI::Validator([least](std::string& text) { return check_whole(text, least, kMostCount); }, ""));
    if (is_type(type, "FLOAT"))
      option->transform(
          CLI::Validator([least_real](std::string& text) { return check_real(text, least_real, kMostReal); }, ""));
  }
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) guard_numbers(*sub);
}

std::map<std::string, double> named_numbers(const std::vector<std::string>& texts) {
  std::map<std::string, double> out;
  for (const std::string& text : texts) {
    const size_t at = text.find('=');
    char* end = nullptr;
    const double value = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 1, &end);
    if (at == std::string::npos || at == 0 || at + 1 == text.size() || *end != 0 || !std::isfinite(value))
      throw usage_error("--config takes KEY=NUMBER, not '{}'", text);
    out[text.substr(0, at)] = value;
  }
  return out;
}

int64_t size_of(const std::string& text) {
  if (text.empty()) return 0;
  size_t used = 0;
  int64_t n = 0;
  try {
    n = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  std::string name = text.substr(used);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (name.size() == 2 && name[1] == 'B') name.pop_back();
  const int64_t unit = name.empty() || name == "B" ? 1
                       : name == "K"               ? 1'000
                       : name == "M"               ? 1'000'000
                       : name == "G"               ? 1'000'000'000
                                                   : 0;
  if (used == 0 || unit == 0 || n < 1 || n > INT64_MAX / unit)
    throw usage_error("'{}' is no size; e.g. 4G or 500M", text);
  return n * unit;
}

std::string usage_text(const CLI::ParseError& error) {
  const std::string all = error.what();
  const std::string_view text = all;
  const std::string kind = error.get_name();
  if (kind == "ValidationError") {
    const auto [option, told] = parted(text, ": ");
    return check_text(option, told);
  }
  if (kind == "ConversionError") {
    if (const auto [before, named] = parted(text, "Could not convert: "); before.empty()) {
      const auto [option, value] = parted(named, " = ");
      return fmt::format("{}: '{}' is no value that it can take", option, value);
    }
    return fmt::format("{}: it takes no such value", parted(text, ":").before);
  }
  if (kind == "ArgumentMismatch") {
    if (const auto [before, named] = parted(text, " arguments to "); !named.empty())
      return fmt::format("{}: it takes {} values", parted(named, ", got").before,
                         before.starts_with("Expected at least ") ? fmt::format("at least {}", before.substr(18))
                                                                  : std::string(before.substr(17)));
    const auto [option, told] = parted(text, ": ");
    if (const auto [missing, type] = parted(told, " required "); type.ends_with(" missing"))
      return fmt::format("{}: its value is missing ({})", option, type.substr(0, type.size() - 8));
    return fmt::format("{}: it takes another number of values", parted(option, " was given").before);
  }
  if (kind == "RequiredError") {
    if (text.starts_with("A subcommand")) return "the command is missing";
    const auto [named, rest] = parted(text, " is required");
    return rest.empty() && named.size() < text.size() ? fmt::format("{} is missing", named)
                                                      : std::string("an argument is missing");
  }
  if (kind == "RequiresError") {
    const auto [one, other] = parted(text, " requires ");
    return fmt::format("{} needs {}", one, other);
  }
  if (kind == "ExcludesError") {
    const auto [one, other] = parted(text, " excludes ");
    return fmt::format("{} and {} cannot be given together", one, other);
  }
  if (kind == "ExtrasError") return fmt::format("{}: unknown", parted(text, "not expected: ").behind);
  return "these words cannot be read as a command";
}

}  // namespace lumen::cli
