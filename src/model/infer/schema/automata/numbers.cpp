#include "model/infer/schema/automata/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace lumen::model::infer {
namespace {

constexpr size_t kMostDigits = 40, kUsualDigits = 16;
constexpr const char* kAnyFraction = "(?:\\.[0-9]+)?";

std::string digits_from(char first, char last) {
  return first == last ? std::string(1, first) : fmt::format("[{}-{}]", first, last);
}

// Patterns of whole numbers without leading zeros above or below `n`.
std::string whole_above(const std::string& n) {
  std::string out = fmt::format("[1-9][0-9]{{{},}}", n.size());
  for (size_t i = 0; i < n.size(); ++i)
    if (n[i] < '9')
      out += fmt::format("|{}{}[0-9]{{{}}}", n.substr(0, i), digits_from(char(n[i] + 1), '9'), n.size() - i - 1);
  return "(?:" + out + ")";
}
std::string whole_below(const std::string& n) {
  std::string out = n.size() > 1 ? fmt::format("0|[1-9][0-9]{{0,{}}}", n.size() - 2) : "";
  for (size_t i = 0; i < n.size(); ++i) {
    const char first = i == 0 && n.size() > 1 ? '1' : '0';
    if (n[i] > first)
      out += fmt::format("{}{}{}[0-9]{{{}}}", out.empty() ? "" : "|", n.substr(0, i),
                         digits_from(first, char(n[i] - 1)), n.size() - i - 1);
  }
  return out.empty() ? "" : "(?:" + out + ")";
}

// Patterns of numbers without sign at or above (below) `n`.
std::string at_least(const Decimal& n, bool excludes) {
  const std::string& f = n.fraction;
  std::string same;
  if (f.empty()) {
    same = excludes ? "\\.[0-9]*[1-9][0-9]*" : kAnyFraction;
  } else {
    same = f + (excludes ? "[0-9]*[1-9][0-9]*" : "[0-9]*");
    for (size_t i = 0; i < f.size(); ++i)
      if (f[i] < '9') same += fmt::format("|{}{}[0-9]*", f.substr(0, i), digits_from(char(f[i] + 1), '9'));
    same = "\\.(?:" + same + ")";
  }
  return fmt::format("(?:{}{}|{}{})", whole_above(n.whole), kAnyFraction, n.whole, same);
}
std::string at_most(const Decimal& n, bool excludes) {
  const std::string& f = n.fraction;
  std::string out;
  const auto add = [&](const std::string& one) { out += (out.empty() ? "" : "|") + one; };
  if (const std::string below = whole_below(n.whole); !below.empty()) add(below + kAnyFraction);
  if (f.empty()) {
    if (!excludes) add(n.whole + "(?:\\.0+)?");
  } else {
    std::string same;
    for (size_t i = 0; i < f.size(); ++i) {
      if (f[i] > '0') same += fmt::format("{}{}[0-9]*|", f.substr(0, i), digits_from('0', char(f[i] - 1)));
      if (i > 0) same += f.substr(0, i) + "|";
    }
    same = excludes ? same.substr(0, same.size() - 1) : same + f + "0*";
    add(fmt::format("{}(?:\\.(?:{}))?", n.whole, same));
  }
  return out.empty() ? "[^\\s\\S]" : "(?:" + out + ")";
}

std::optional<Automaton> whole_text(const std::string& pattern) {
  const auto parsed = EcmaPattern::parse("^(?:" + pattern + ")$");
  return parsed ? Automaton::of(*parsed) : std::nullopt;
}

}  // namespace

std::optional<Decimal> Decimal::of(const nlohmann::ordered_json& number) {
  return number.is_number() ? parse(number.dump()) : std::nullopt;
}

std::optional<Decimal> Decimal::parse(std::string text) {
  Decimal out;
  if (text.starts_with('-')) {
    out.is_negative = true;
    text.erase(0, 1);
  }
  long exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits = text.substr(0, point) + (point < text.size() ? text.substr(point + 1) : "");
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  if (digits.find_first_not_of('0') == std::string::npos) return Decimal{};
  const long whole = long(point) + exponent;
  if (std::abs(whole) > long(kMostDigits) || digits.size() > 2 * kMostDigits) return std::nullopt;
  if (whole <= 0) digits.insert(0, size_t(1 - whole), '0');
  const size_t at = size_t(std::max(whole, 1L));
  if (digits.size() < at) digits.append(at - digits.size(), '0');
  out.whole = digits.substr(0, at);
  out.fraction = digits.substr(at);
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size() - 1));
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  if (out.whole.size() > kMostDigits || out.fraction.size() > kMostDigits) return std::nullopt;
  return out;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.is_zero() && b.is_zero()) return 0;
  if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
  int order = a.whole.size() != b.whole.size() ? (a.whole.size() < b.whole.size() ? -1 : 1) : a.whole.compare(b.whole);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return a.is_negative ? -order : order;
}

std::optional<bool> is_multiple(const Decimal& number, const Decimal& of) {
  const size_t places = std::max(number.fraction.size(), of.fraction.size());
  const auto scaled = [&](const Decimal& d) {
    return d.whole + d.fraction + std::string(places - d.fraction.size(), '0');
  };
  unsigned long long divisor = 0;
  for (const char c : scaled(of)) {
    if (divisor > 100'000'000'000'000'000u) return std::nullopt;
    divisor = divisor * 10 + unsigned(c - '0');
  }
  if (divisor == 0) return std::nullopt;
  uint64_t rest = 0;  // below 10^18 + 10, so that ten times as much fits
  for (const char c : scaled(number)) rest = (rest * 10 + unsigned(c - '0')) % divisor;
  return rest == 0;
}

void NumberRange::raise(const Decimal& bound, bool excludes) {
  const int order = least ? compare(bound, *least) : 1;
  if (order > 0 || (order == 0 && excludes)) {
    least = bound;
    excludes_least = excludes;
  }
}

void NumberRange::lower(const Decimal& bound, bool excludes) {
  const int order = most ? compare(bound, *most) : -1;
  if (order < 0 || (order == 0 && excludes)) {
    most = bound;
    excludes_most = excludes;
  }
}

std::optional<Automaton> NumberRange::automaton() const {
  size_t whole = kUsualDigits, fraction = kUsualDigits;
  for (const auto* bound : {&least, &most}) {
    if (!*bound) continue;
    whole = std::max(whole, (*bound)->whole.size());
    fraction = std::max(fraction, (*bound)->fraction.size());
  }
  const std::string any_whole = fmt::format("(?:0|[1-9][0-9]{{0,{}}})", whole - 1);
  const std::string any = is_whole ? any_whole : fmt::format("{}(?:\\.[0-9]{{1,{}}})?", any_whole, fraction);
  std::optional<Automaton> out = whole_text("-?" + any);
  const auto restrict = [&](const std::string& pattern) {
    const auto one = whole_text(pattern);
    out = one && out ? out->intersect(*one) : std::nullopt;
  };
  if (least) {
    if (least->is_negative && !least->is_zero())
      restrict(fmt::format("-{}|[0-9].*", at_most(*least, excludes_least)));
    else
      restrict(at_least(*least, excludes_least));
  }
  if (most) {
    if (most->is_zero() && excludes_most)
      restrict("-" + at_least(Decimal{}, true));
    else if (most->is_negative && !most->is_zero())
      restrict("-" + at_least(*most, excludes_most));
    else
      restrict("-.*|" + at_most(*most, excludes_most));
  }
  return out;
}

std::optional<Automaton> multiples_automaton(const Decimal& of) {
  if (of.is_negative || of.is_zero() || of.whole.size() > 6 || of.fraction.size() > 12) return std::nullopt;
  return Automaton::of_multiples(std::strtoll((of.whole + of.fraction).c_str(), nullptr, 10), int(of.fraction.size()));
}

}  // namespace lumen::model::infer
