#include "model/compress/choose/budget.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::compress {
namespace {

constexpr const char* kHint = "as in 4.2bpw, 3.5GB, 3.5GiB, 12ms (a token), kl=0.02 (nats) or ppl=+1%";

struct Unit {
  std::string_view name;
  Budget::Kind kind;
  double factor;
};
constexpr double kKilo = 1024;
constexpr Unit kUnits[] = {
    {"bpw", Budget::Kind::bits, 1},
    {"bits", Budget::Kind::bits, 1},
    {"ms", Budget::Kind::time, 1},
    {"b", Budget::Kind::bytes, 1},
    {"bytes", Budget::Kind::bytes, 1},
    {"kb", Budget::Kind::bytes, 1e3},
    {"mb", Budget::Kind::bytes, 1e6},
    {"gb", Budget::Kind::bytes, 1e9},
    {"tb", Budget::Kind::bytes, 1e12},
    {"kib", Budget::Kind::bytes, kKilo},
    {"mib", Budget::Kind::bytes, kKilo * kKilo},
    {"gib", Budget::Kind::bytes, kKilo * kKilo * kKilo},
    {"tib", Budget::Kind::bytes, kKilo * kKilo * kKilo * kKilo},
};

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw Error(Exit::usage, fmt::format("'{}' is no budget: {}", text, why), kHint);
}

// Removes and returns a number at the front; decimal, without a sign.
std::optional<double> take_number(std::string& text) {
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return std::nullopt;
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || !std::isfinite(value)) return std::nullopt;
  text.erase(0, end - text.data());
  return value;
}

Budget of_score(std::string_view whole, const std::string& name, std::string rest) {
  Budget out;
  if (name == "kl") {
    out.kind = Budget::Kind::divergence;
    const auto value = take_number(rest);
    if (!value || !rest.empty()) refuse(whole, "kl= is followed by a number of nats");
    out.value = *value;
    return out;
  }
  if (name != "ppl") refuse(whole, fmt::format("'{}' is nothing that can be limited", name));
  out.kind = Budget::Kind::loss;
  const bool relative = rest.starts_with('+');
  if (relative) rest.erase(0, 1);
  const auto value = take_number(rest);
  if (!relative || !value || rest != "%") refuse(whole, "ppl= is followed by the allowed rise, as in +1%");
  out.value = *value / 100;
  return out;
}

}  // namespace

double Budget::most_score() const {
  LUMEN_CHECK(limits_score());
  return kind == Kind::loss ? std::log1p(value) : value;
}

int64_t Budget::most_bytes(int64_t weights) const {
  LUMEN_CHECK(limits_size());
  const double bytes = kind == Kind::bits ? value * weights / 8 : value;
  return std::floor(std::min(bytes, 9e15));
}

std::string Budget::text() const {
  switch (kind) {
    case Kind::bytes:
      return fmt::format("{}bytes", value);
    case Kind::bits:
      return fmt::format("{}bpw", value);
    case Kind::time:
      return fmt::format("{}ms", value);
    case Kind::divergence:
      return fmt::format("kl={}", value);
    case Kind::loss:
      return fmt::format("ppl=+{:.12g}%", 100 * value);
  }
  LUMEN_CHECK(false);
}

Budget parse_budget(std::string_view text) {
  std::string rest;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
    if (c != ' ' && c != '\t' && c != '_') rest += c;
  }
  if (rest.empty()) refuse(text, "it is empty");
  if (rest.size() > 64) refuse(text.substr(0, 64), "it is too long");
  if (const size_t at = rest.find('='); at != std::string::npos)
    return of_score(text, rest.substr(0, at), rest.substr(at + 1));
  const auto value = take_number(rest);
  if (!value) refuse(text, "it does not begin with a number");
  if (rest.empty()) refuse(text, "its unit is missing");
  for (const Unit& u : kUnits) {
    if (rest != u.name) continue;
    if (*value <= 0) refuse(text, "it must be above 0");
    if (*value * u.factor > 9e15) refuse(text, "it is too large");
    return {u.kind, *value * u.factor};
  }
  refuse(text, fmt::format("'{}' is no unit", rest));
}

}  // namespace lumen::model::compress
