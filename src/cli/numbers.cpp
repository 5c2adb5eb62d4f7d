#include "cli/numbers.h"

#include <fmt/format.h>

#include <cfloat>
#include <charconv>
#include <cmath>
#include <string>

#include "base/error.h"

namespace lumen::cli {
namespace {

constexpr int64_t kMostCount = 1'000'000'000'000'000;
constexpr double kMostReal = 1e30;
constexpr int64_t kEndless = INT32_MAX;  // a bound this large is not shown to users

// 1,000,000
std::string grouped(int64_t n) {
  std::string out = std::to_string(n);
  for (size_t at = out.size(); at > (n < 0 ? 4U : 3U);) out.insert(at -= 3, ",");
  return out;
}

struct Read {
  bool number = false;           // the text is a number, of any size
  std::optional<int64_t> value;  // nullopt: too large for any count
};

Read read_whole(std::string_view text) {
  if (text.starts_with('+') && text.size() > 1 && text[1] != '-') text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong == std::errc::invalid_argument || end != text.data() + text.size()) return {};
  return {true, wrong == std::errc() ? std::optional(value) : std::nullopt};
}

std::optional<double> read_real(const std::string& text) {
  double value = 0;
  const char* begin = text.data() + (text.starts_with('+') && !text.starts_with("+-") ? 1 : 0);
  const auto [end, wrong] = std::from_chars(begin, text.data() + text.size(), value);
  if (wrong == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  return wrong == std::errc() ? value : HUGE_VAL;
}

std::string plain(double x) {
  return std::abs(x) >= 1e6 ? fmt::format("{:g}", x) : fmt::format("{}", x);
}

// Whether a lower bound only excludes 0.
bool is_above_zero(double least) {
  return least > 0 && least <= 1e-6;
}

// The error for a text that is no whole number within bounds, else empty. A valid text is rewritten in decimal, which
// the parser cannot misread.
std::string check_whole(std::string& text, int64_t least, int64_t most) {
  const Read read = read_whole(text);
  if (!read.number) return fmt::format("'{}' is not a whole number", text);
  if (read.value && *read.value >= least && *read.value <= most) {
    text = std::to_string(*read.value);
    return {};
  }
  if (most < kEndless) return fmt::format("{} is not from {} to {}", text, grouped(least), grouped(most));
  const bool below = read.value ? *read.value < least : text.starts_with('-');
  return below ? fmt::format("{} is less than {}", text, grouped(least))
               : fmt::format("{} is more than {}", text, grouped(most));
}

std::string check_real(std::string& text, double least, double most) {
  const auto value = read_real(text);
  if (!value) return fmt::format("'{}' is not a number", text);
  if (*value >= least && *value <= most) return {};
  if (!std::isfinite(*value)) return fmt::format("{} is not a finite number", text);
  if (most >= kMostReal && *value > most) return fmt::format("{} is too large", text);
  if (most >= kMostReal)
    return is_above_zero(least) ? fmt::format("{} is not above 0", text)
                                : fmt::format("{} is less than {}", text, plain(least));
  return is_above_zero(least) ? fmt::format("{} is not above 0 and up to {}", text, plain(most))
                              : fmt::format("{} is not from {} to {}", text, plain(least), plain(most));
}

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

CLI::Validator whole(int64_t least, int64_t most) {
  return CLI::Validator([least, most](std::string& text) { return check_whole(text, least, most); },
                        most < kEndless ? fmt::format("{} to {}", least, most) : fmt::format("from {}", least));
}

CLI::Validator real(double least, double most) {
  return CLI::Validator([least, most](std::string& text) { return check_real(text, least, most); },
                        is_above_zero(least) ? fmt::format("above 0 to {}", plain(most))
                                             : fmt::format("{} to {}", plain(least), plain(most)));
}

std::optional<std::pair<int64_t, int64_t>> two_counts(std::string_view text, char sign) {
  const size_t at = text.find(sign);
  if (at == std::string_view::npos) return std::nullopt;
  const Read first = read_whole(text.substr(0, at)), second = read_whole(text.substr(at + 1));
  const auto fits = [](const Read& r) { return r.value && *r.value >= 1 && *r.value <= kEndless; };
  if (!fits(first) || !fits(second)) return std::nullopt;
  return std::pair(*first.value, *second.value);
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
