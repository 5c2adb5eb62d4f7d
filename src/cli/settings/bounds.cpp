#include "cli/settings/bounds.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace lumen::cli {
namespace {

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

}  // namespace

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

CLI::Validator whole(int64_t least, int64_t most) {
  return CLI::Validator([least, most](std::string& text) { return check_whole(text, least, most); },
                        most < kEndless ? fmt::format("{} to {}", least, most) : fmt::format("from {}", least));
}

CLI::Validator real(double least, double most) {
  return CLI::Validator([least, most](std::string& text) { return check_real(text, least, most); },
                        most >= kMostReal      ? fmt::format("from {}", plain(least))
                        : is_above_zero(least) ? fmt::format("above 0 to {}", plain(most))
                                               : fmt::format("{} to {}", plain(least), plain(most)));
}

}  // namespace lumen::cli
