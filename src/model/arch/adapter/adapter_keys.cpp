#include "model/arch/adapter/adapter_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/structured/toml.h"

namespace lumen::model::arch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kShown = 80;  // characters of a value in messages

std::vector<AdapterKeys::Rule> rules_of(const Toml& table, const char* name) {
  std::vector<AdapterKeys::Rule> out;
  for (const Toml& r : table.tables(name)) out.push_back({r.texts("keys"), r.text("because"), r.text("instead", "")});
  return out;
}

AdapterKeys::Kind kind_of(const Toml& table) {
  AdapterKeys::Kind out;
  out.name = table.text("name", "");
  out.read = table.texts("read");
  out.unread = rules_of(table, "unread");
  out.refused = rules_of(table, "refused");
  for (const Toml& v : table.tables("values"))
    out.values.push_back({v.text("key"), v.texts("known"), v.text("because"), v.text("instead")});
  return out;
}

AdapterKeys read_table() {
  AdapterKeys out;
  for (const embedded::File& file : embedded::models()) {
    if (file.path != "models/adapters.toml") continue;
    const Toml document = Toml::parse(std::string(file.text), "<embedded adapters.toml>");
    for (const Toml& k : document.tables("kind")) out.kinds.push_back(kind_of(k));
    for (const Toml& o : document.tables("other"))
      out.other.push_back({o.texts("names"), o.text("because"), o.text("instead")});
    out.tied = document.texts("tied");
    if (const auto gguf = document.table("gguf")) out.gguf = kind_of(*gguf);
    document.refuse_unknown();
  }
  LUMEN_CHECK(!out.kinds.empty() && !out.tied.empty() && !out.gguf.read.empty(), "adapters.toml is not embedded");
  return out;
}

bool matches_key(const std::string& pattern, const std::string& key) {
  return pattern.ends_with('*') ? key.starts_with(pattern.substr(0, pattern.size() - 1)) : key == pattern;
}

bool holds(const std::vector<std::string>& patterns, const std::string& key) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return matches_key(p, key); });
}

// Null, false and empty values have no effect.
bool says_something(const ordered_json& value) {
  if (value.is_null() || value == false || value == "") return false;
  return !((value.is_object() || value.is_array()) && value.empty());
}

std::string shown(const std::string& text) {
  return printable(text.size() <= kShown ? text : text.substr(0, kShown) + "..");
}

std::string shown(const ordered_json& value) {
  return shown(value.dump(-1, ' ', true, ordered_json::error_handler_t::replace));
}

const AdapterKeys::Rule* rule_for(const std::vector<AdapterKeys::Rule>& rules, const std::string& key) {
  const auto found = std::ranges::find_if(rules, [&](const auto& rule) { return holds(rule.keys, key); });
  return found == rules.end() ? nullptr : &*found;
}

}  // namespace

AdapterKeys::Use AdapterKeys::Kind::use_of(const std::string& key) const {
  Use out;
  size_t longest = 0;
  const auto look = [&](const std::vector<std::string>& patterns, Verdict verdict, const Rule* rule) {
    for (const std::string& p : patterns) {
      if (!matches_key(p, key) || p.size() <= longest) continue;
      longest = p.size();
      out = {verdict, rule};
    }
  };
  look(read, Verdict::read, nullptr);
  for (const Values& v : values) look({v.key}, Verdict::read, nullptr);
  for (const Rule& rule : unread) look(rule.keys, Verdict::unread, &rule);
  for (const Rule& rule : refused) look(rule.keys, Verdict::refused, &rule);
  return out;
}

namespace {

// Error when a key with an effect is refused or unknown.
void check_key(const AdapterKeys::Kind& kind, const std::string& key, const std::string& value,
               const std::string& file) {
  const AdapterKeys::Use use = kind.use_of(key);
  if (use.verdict == AdapterKeys::Verdict::refused)
    throw Error(
        Exit::user,
        fmt::format("{}: \"{}\" is {}, which is not supported: {}", file, printable(key), value, use.rule->because),
        use.rule->instead);
  if (use.verdict == AdapterKeys::Verdict::unknown)
    throw Error(
        Exit::user, fmt::format("{}: \"{}\" is {}, and the effect of the key is unknown", file, printable(key), value),
        "merge the adapter into its model with the program that made it; or, if the key has no effect, remove it "
        "from the file");
}

}  // namespace

const AdapterKeys& adapter_keys() {
  static const AdapterKeys table = read_table();
  return table;
}

const AdapterKeys::Kind& check_adapter_keys(const ordered_json& config, const std::string& file) {
  if (!config.is_object()) throw user_error("{}: not a JSON object", file);
  const AdapterKeys& table = adapter_keys();
  const auto type = config.find("peft_type");
  if (type == config.end() || !type->is_string())
    throw Error(Exit::user, fmt::format("{}: \"peft_type\" is missing, so the kind of adapter is unknown", file),
                "low-rank adapters have \"LORA\"");
  const auto name = type->get<std::string>();
  const auto kind = std::ranges::find(table.kinds, name, &AdapterKeys::Kind::name);
  if (kind == table.kinds.end()) {
    const AdapterKeys::Rule* rule = rule_for(table.other, name);
    throw Error(Exit::user,
                fmt::format("{}: peft_type \"{}\" is not supported{}{}", file, printable(name), rule ? ": " : "",
                            rule ? rule->because : ""),
                rule ? rule->instead : "merge the adapter into its model with the program that made it");
  }
  for (const auto& [key, value] : config.items()) {
    const auto values = std::ranges::find(kind->values, key, &AdapterKeys::Values::key);
    if (values != kind->values.end()) {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (value.is_null() || std::ranges::find(values->known, text) != values->known.end()) continue;
      throw Error(Exit::user, fmt::format("{}: \"{}\" is {}: {}", file, key, shown(value), values->because),
                  values->instead);
    }
    if (says_something(value)) check_key(*kind, key, shown(value), file);
  }
  return *kind;
}

void check_adapter_keys(const file::GgufMetadata& metadata, const std::string& file) {
  for (const auto& [key, value] : metadata.entries())
    check_key(adapter_keys().gguf, key, shown(file::gguf_print(value)), file);
}

}  // namespace lumen::model::arch
