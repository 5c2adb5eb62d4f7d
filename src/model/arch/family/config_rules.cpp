// Attributes of models that are handled here: unread, refused, hides (all inherited); of config keys: hf_null,
// gguf_formula, fixed, hf_at_least, hf_length, and the second value of hf_each.
#include "model/arch/family/config_rules.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/error.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

// Keys, then the word `because` and a reason.
void take_rule(const lang::Attribute& a, std::vector<ConfigRules::Rule>& rules) {
  std::vector<std::string> keys;
  std::string because;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const lang::Expr& value = *a.values[i];
    if (value.kind == lang::ExprKind::name && value.text == "because" && i + 2 == a.values.size() &&
        a.values[i + 1]->kind == lang::ExprKind::string) {
      because = a.values[i + 1]->text;
      break;
    }
    if (value.kind != lang::ExprKind::string)
      throw error_at(value.place,
                     fmt::format("attribute '{}' takes keys in quotes, then 'because' and a reason", a.name));
    keys.push_back(value.text);
  }
  if (keys.empty() || because.empty())
    throw error_at(a.place, fmt::format("attribute '{}' needs keys and a reason", a.name),
                   fmt::format("e.g. {} \"attention_dropout\" because \"only training uses it\"", a.name));
  for (const std::string& key : keys) {
    const bool known = std::any_of(rules.begin(), rules.end(), [&](const auto& r) { return r.key == key; });
    if (!known) rules.push_back({key, because});
  }
}

// Null, false and empty values have no effect.
bool says_something(const json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return false;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !(value.is_structured() && value.empty());
}

void erase_path(json& object, const std::string& path) {
  if (!object.is_object()) return;
  object.erase(path);
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return;
  if (const auto inner = object.find(path.substr(0, dot)); inner != object.end())
    erase_path(*inner, path.substr(dot + 1));
}

// Whether a described key is this one or inside it.
bool covers(const std::string& key, const std::string& described) {
  return described == key || described.starts_with(key + ".");
}

constexpr size_t kShown = 120;  // characters of a value in messages

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "..";
}

}  // namespace

const json* find_path(const json& object, const std::string& path) {
  if (!object.is_object()) return nullptr;
  if (const auto at = object.find(path); at != object.end()) return &*at;
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto at = object.find(path.substr(0, dot));
  return at == object.end() ? nullptr : find_path(*at, path.substr(dot + 1));
}

ConfigRules::ConfigRules(const Family& family) : family_(family), decl_(family.declaration()) {
  for (const lang::Attribute& a : decl_.attributes) {
    if (a.name == "unread") take_rule(a, unread_);
    if (a.name == "refused") take_rule(a, refused_);
    if (a.name != "hides") continue;
    std::vector<std::string> keys;
    for (const lang::ExprPtr& value : a.values) keys.push_back(value->text);
    if (keys.size() < 2)
      throw error_at(a.place, "attribute 'hides' needs a key and those it hides",
                     "e.g. hides \"new_name\" \"old_name\"");
    hides_.emplace_back(keys.front(), std::vector<std::string>(keys.begin() + 1, keys.end()));
  }
  for (const lang::ConfigKey& key : decl_.config) {
    for (const lang::Attribute& a : key.attributes) {
      if (a.name == "fixed") fixed_.push_back(key.name);
      if (a.name == "never") {
        std::vector<Rule> blamed;
        take_rule(a, blamed);
        never_.emplace_back(key.name, blamed.front());
      }
      if (a.name == "hf_at_least") longer_.insert(key.name);
      if (a.name == "hf_length")
        for (const lang::ExprPtr& value : a.values) lengths_[key.name].push_back(value->text);
      if (a.name == "hf_each" && a.values.size() > 1) others_[key.name] = a.values[1]->text;
      if (a.name != "hf_null" && a.name != "gguf_formula") continue;
      if (a.values.size() != 1)
        throw error_at(a.place, fmt::format("'{}' needs one value", a.name), fmt::format("e.g. {} 0", a.name));
      (a.name == "hf_null" ? nulls_ : formulas_)[key.name] = a.values.front();
    }
  }
  for (const lang::SizeDecl& size : decl_.sizes)
    if (size.name == kConfigSize) size_ = size.name;
  // A key that the family reads is not refused, whatever its base families say.
  std::set<std::string> described;
  for (const ConfigKey& key : family.keys()) {
    described.insert(key.hf.begin(), key.hf.end());
    for (const std::string& other : {key.hf_members, key.hf_each})
      if (!other.empty()) described.insert(other);
  }
  for (std::vector<Rule>* rules : {&unread_, &refused_}) {
    std::erase_if(*rules, [&](const Rule& rule) {
      return std::any_of(described.begin(), described.end(), [&](const auto& d) { return covers(rule.key, d); });
    });
  }
}

void ConfigRules::check(const json& config, const std::string& file) const {
  for (const Rule& rule : refused_) {
    const json* value = find_path(config, rule.key);
    if (!value || !says_something(*value)) continue;
    throw Error(Exit::user,
                fmt::format("{}: \"{}\" is {}, which the family '{}' does not describe", file, rule.key, shown(*value),
                            family_.name()),
                rule.because);
  }
}

void ConfigRules::check(const graph::Config& config, const std::string& file) const {
  for (const auto& [key, rule] : never_) {
    for (const ConfigKey& k : family_.keys()) {
      if (k.name != key) continue;
      const auto entries = k.entries(config);
      if (std::all_of(entries.begin(), entries.end(), [&](const auto& name) { return config.at(name) == 0; })) continue;
      throw Error(
          Exit::user,
          fmt::format("{}: \"{}\" has a value that the family '{}' does not describe", file, rule.key, family_.name()),
          rule.because);
    }
  }
}

json ConfigRules::visible(json config) const {
  for (const auto& [key, hidden] : hides_) {
    const json* value = find_path(config, key);
    if (!value || !says_something(*value)) continue;
    for (const std::string& other : hidden) erase_path(config, other);
  }
  return config;
}

double ConfigRules::null_value(const std::string& key, const graph::Config& config) const {
  return graph::config_number(decl_, *nulls_.at(key), config);
}

bool ConfigRules::null_is_word(const std::string& key) const {
  return nulls_.at(key)->kind == lang::ExprKind::number;
}

double ConfigRules::gguf_formula(const std::string& key, const graph::Config& config, int64_t element) const {
  return graph::config_number(decl_, *formulas_.at(key), config, element);
}

std::vector<std::string> ConfigRules::lengths_of(const std::string& key) const {
  const auto at = lengths_.find(key);
  return at == lengths_.end() ? std::vector<std::string>() : at->second;
}

std::string ConfigRules::others_of(const std::string& key) const {
  const auto at = others_.find(key);
  return at == others_.end() ? "" : at->second;
}

bool ConfigRules::is_fixed(const std::string& key) const {
  return std::find(fixed_.begin(), fixed_.end(), key) != fixed_.end();
}

graph::Config ConfigRules::complete(const graph::Config& values) const {
  return family_.config(size_, values);
}

}  // namespace lumen::model::arch
