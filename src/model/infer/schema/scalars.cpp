// Rules of enumerated values, numbers and strings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/infer/schema/automata/formats.h"
#include "model/infer/schema/automata/numbers.h"
#include "model/infer/schema/compiler.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::infer {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLongest = 200'000;  // characters of a string that rules count
constexpr size_t kManyValues = 16;
constexpr int kDeepestPrefix = 300;

// The expression of a value, with the white space that other values may have.
std::string value_text(const ordered_json& v) {
  if (!v.is_structured() || v.empty())
    return v.is_array() ? "\"[\" space \"]\"" : v.is_object() ? "\"{\" space \"}\"" : grammar_literal(v.dump());
  std::string out;
  const auto next = [&] { return out.empty() ? "" : " \",\" space "; };
  if (v.is_array()) {
    for (const auto& one : v) out += next() + value_text(one);
    return "\"[\" space " + out + " space \"]\"";
  }
  for (const auto& [name, one] : v.items())
    out += next() + grammar_literal(ordered_json(name).dump()) + " \":\" space " + value_text(one);
  return "\"{\" space " + out + " space \"}\"";
}

}  // namespace

int64_t SchemaCompiler::count_of(const Json& value) {
  return int64_t(value.get<double>());
}

// Values of const and enum that fit all other constraints. False if the set has none of both keywords.
bool SchemaCompiler::put_values(int32_t rule, const Items& items, const Flat& set) {
  const Json *only = nullptr, *list = nullptr;
  for (const Json* local : set.locals) {
    if (const Json* one = find(local, "const")) only = one;
    const Json* many = find(local, "enum");
    if (many && (!list || many->size() < list->size())) list = many;
  }
  if (!only && !list) return false;
  std::vector<std::string> literals;
  std::set<std::string> known;
  const auto add = [&](const Json& value) {
    const auto holds = [&](const Item& item) { return fits(value, item); };
    if (is_full(items.size() + 1))
      relax(set.locals[0], "enum");  // the other constraints of the remaining values are not enforced
    else if (!std::all_of(items.begin(), items.end(), holds))
      return;
    if (!known.insert(value.dump()).second) return;
    if (value.is_structured())
      rules_.put(rule, {Rules::text(value_text(value))});
    else
      literals.push_back(value.dump());
  };
  if (only) {
    add(*only);
  } else {
    for (const auto& value : *list) add(value);
  }
  put_literals(rule, std::move(literals));
  return true;
}

// Many literals are split by their first characters, so that a matcher follows few of them.
void SchemaCompiler::put_literals(int32_t rule, std::vector<std::string> literals, int depth) {
  if (literals.size() <= kManyValues || depth > kDeepestPrefix) {
    for (const std::string& one : literals) rules_.put(rule, {Rules::text(grammar_literal(one))});
    return;
  }
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& one : literals) {
    char32_t c = 0;
    groups[one.substr(0, text::utf8_char(one, 0, &c))].push_back(one);
  }
  for (auto& [first, group] : groups) {
    if (first.empty() || group.size() == 1) {
      rules_.put(rule, {Rules::text(grammar_literal(group[0]))});
      continue;
    }
    // The characters that the whole group begins with.
    size_t shared = first.size();
    for (;;) {
      char32_t c = 0;
      const size_t n = text::utf8_char(group[0], shared, &c);
      const auto has = [&](const std::string& s) { return n > 0 && s.compare(shared, n, group[0], shared, n) == 0; };
      if (n == 0 || !std::all_of(group.begin(), group.end(), has)) break;
      shared += n;
    }
    const std::string prefix = group[0].substr(0, shared);
    for (std::string& one : group) one.erase(0, shared);
    const int32_t rest = rules_.add();
    put_literals(rest, std::move(group), depth + 1);
    rules_.put(rule, {Rules::text(grammar_literal(prefix)), Rules::use(rest)});
  }
}

void SchemaCompiler::put_number(int32_t rule, const Flat& set, bool is_whole) {
  NumberRange range;
  range.is_whole = is_whole;
  std::vector<std::pair<Decimal, const Json*>> multiples;
  bool is_bounded = false;
  const Json* holder = nullptr;
  for (const Json* local : set.locals) {
    const auto flag = [&](const char* keyword) {
      const Json* v = find(local, keyword);
      return v && v->is_boolean() && v->get<bool>();
    };
    const auto bound = [&](const char* keyword, bool is_low, bool excludes) {
      const Json* v = find(local, keyword);
      if (!v || !v->is_number()) return;
      is_bounded = true;
      holder = local;
      const auto decimal = Decimal::of(*v);
      // A bound far beyond the numbers that are written without an exponent restricts nothing; others are relaxed.
      if (!decimal && std::abs(v->get<double>()) > 1 && (v->get<double>() < 0) == is_low) return;
      if (!decimal) return relax(local, keyword);
      is_low ? range.raise(*decimal, excludes) : range.lower(*decimal, excludes);
    };
    bound("minimum", true, flag("exclusiveMinimum"));
    bound("maximum", false, flag("exclusiveMaximum"));
    bound("exclusiveMinimum", true, true);
    bound("exclusiveMaximum", false, true);
    if (const Json* v = find(local, "multipleOf")) {
      const auto decimal = Decimal::of(*v);
      if (decimal && decimal->fraction.empty() && decimal->whole == "1")
        range.is_whole = true;
      else if (decimal)
        multiples.emplace_back(*decimal, local);
      else
        relax(local, "multipleOf");
    }
  }
  if (!is_bounded && multiples.empty()) {
    rules_.put(rule, {Rules::text(range.is_whole ? "integer" : "number")});
    return;
  }
  std::string key = range.is_whole ? "whole" : "number";
  const auto name = [](const Decimal& d) {
    return fmt::format("{}{}.{}", d.is_negative ? "-" : "", d.whole, d.fraction);
  };
  if (range.least) key += fmt::format(" {} {}", range.excludes_least ? ">" : ">=", name(*range.least));
  if (range.most) key += fmt::format(" {} {}", range.excludes_most ? "<" : "<=", name(*range.most));
  for (const auto& [multiple, local] : multiples) key += " * " + name(multiple);
  if (const auto known = scalars_.find(key); known != scalars_.end()) {
    rules_.put(rule, {Rules::use(known->second)});
    return;
  }
  std::optional<Automaton> out = range.automaton();
  if (!out) {
    relax(holder ? holder : set.locals[0], "minimum");
    range.least.reset();
    range.most.reset();
    out = range.automaton();
  }
  for (const auto& [multiple, local] : multiples) {
    const auto one = multiples_automaton(multiple);
    auto both = one && out ? out->intersect(*one, &budget_) : std::nullopt;
    if (both)
      out = std::move(both);
    else
      relax(local, "multipleOf");
  }
  if (!out) {
    rules_.put(rule, {Rules::text(range.is_whole ? "integer" : "number")});
    return;
  }
  scalars_[key] = rules_.add(*out, false);
  rules_.put(rule, {Rules::use(scalars_[key])});
}

const Automaton* SchemaCompiler::pattern_automaton(const std::string& pattern) {
  const auto [at, is_new] = automata_.try_emplace(pattern);
  if (is_new) {
    if (const EcmaPattern* parsed = validator_.pattern(pattern)) at->second = Automaton::of(*parsed, &budget_);
  }
  return at->second ? &*at->second : nullptr;
}

std::optional<Automaton> SchemaCompiler::strings(const Flat& set) {
  std::optional<Automaton> out;
  const auto restrict = [&](const Json* local, const char* keyword, const Automaton* one, bool is_negated) {
    std::optional<Automaton> made;
    if (one) made = is_negated ? one->complement() : *one;
    if (made && out) made = out->intersect(*made, &budget_);
    if (!made) return relax(local, keyword);
    out = std::move(made);
  };
  int64_t least = 0, most = -1;
  const Json *holder = nullptr, *unlimited = nullptr;
  for (const Json* local : set.locals) {
    for (const char* keyword : {"pattern", "\x01notPattern"}) {
      if (const Json* v = find(local, keyword))
        restrict(local, "pattern", pattern_automaton(v->get_ref<const std::string&>()), keyword[0] == '\x01');
    }
    for (const char* keyword : {"format", "\x01notFormat"}) {
      const Json* v = find(local, keyword);
      const std::string* known = v ? format_pattern(v->get_ref<const std::string&>()) : nullptr;
      if (known) restrict(local, "format", pattern_automaton(*known), keyword[0] == '\x01');
      if (known && keyword[0] == 'f' && !format_is_whole(v->get_ref<const std::string&>())) unlimited = local;
    }
    if (const Json* list = find(local, "\x01notEnum")) {
      std::vector<std::string> strings;
      for (const auto& v : *list)
        if (v.is_string()) strings.push_back(v);
      const auto one = strings.empty() ? std::nullopt : Automaton::of_strings(strings);
      if (!strings.empty()) restrict(local, "", one ? &*one : nullptr, true);
    }
    const Json *low = find(local, "minLength"), *high = find(local, "maxLength");
    if (low) least = std::max(least, count_of(*low));
    if (high) most = most < 0 ? count_of(*high) : std::min(most, count_of(*high));
    if (low || high) holder = local;
  }
  if (unlimited && (most < 0 || most > kLongestHostname)) relax(unlimited, "format");
  if (!out || (least == 0 && most < 0)) return out;
  if (most >= 0 && most < least) return Automaton();
  const auto length = Automaton::of_length(least, most);
  auto both = length ? out->intersect(*length, &budget_) : std::nullopt;
  if (both) return both;
  relax(holder, most < 0 ? "minLength" : "maxLength");
  return out;
}

void SchemaCompiler::put_string(int32_t rule, const Flat& set) {
  const auto quoted = [&](RulePart inside) {
    rules_.put(rule, {Rules::text("\"\\\"\""), std::move(inside), Rules::text("\"\\\"\"")});
  };
  // Equal constraints share their rules.
  std::string key = "string";
  int64_t least = 0, most = -1;
  bool has_strings = false;
  for (const Json* local : set.locals) {
    for (const char* keyword : {"pattern", "\x01notPattern", "format", "\x01notFormat", "\x01notEnum"}) {
      const Json* v = find(local, keyword);
      if (!v || (std::string_view(keyword) == "format" && !format_pattern(v->get_ref<const std::string&>()))) continue;
      key += fmt::format("\n{} {}", keyword, v->dump());
      has_strings = true;
    }
    if (const Json* v = find(local, "minLength")) least = std::max(least, count_of(*v));
    if (const Json* v = find(local, "maxLength")) most = most < 0 ? count_of(*v) : std::min(most, count_of(*v));
  }
  key += fmt::format("\n{} {}", least, most);
  if (most >= 0 && most < least) return;
  if (!has_strings) {
    if (least == 0 && most < 0) return rules_.put(rule, {Rules::text("string")});
    for (const auto& [bound, keyword] : {std::pair{&least, "minLength"}, std::pair{&most, "maxLength"}}) {
      if (*bound <= kLongest) continue;
      for (const Json* local : set.locals)
        if (find(local, keyword)) relax(local, keyword);
      *bound = bound == &most ? -1 : kLongest;
    }
    if (const auto known = scalars_.find(key); known == scalars_.end())
      scalars_[key] = rules_.add({{Rules::text("character")}});
    return quoted(Rules::use(scalars_[key], least, most));
  }
  const auto known = scalars_.find(key);
  const size_t relaxed_before = relaxed_.size();
  if (known != scalars_.end()) return quoted(Rules::use(known->second));
  const std::optional<Automaton> allowed = strings(set);
  if (allowed && !is_full(allowed->states())) {
    const int32_t inside = rules_.add(*allowed, true);
    // Sets whose keywords were relaxed are compiled again, so that each place is listed.
    if (relaxed_.size() == relaxed_before) scalars_[key] = inside;
    return quoted(Rules::use(inside));
  }
  if (allowed)
    for (const Json* local : set.locals)
      if (find(local, "pattern") || find(local, "format")) relax(local, find(local, "pattern") ? "pattern" : "format");
  rules_.put(rule, {Rules::text("string")});
}

}  // namespace lumen::model::infer
