#include "model/arch/checkpoint/packed/method.h"

#include <algorithm>
#include <regex>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structured/toml.h"
#include "model/arch/checkpoint/packed/scheme.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

constexpr size_t kShown = 120;        // characters of a value in messages
constexpr size_t kMostGroups = 1024;  // limits the work for a hostile file

PackingMethod parsed_method(const Toml& m) {
  PackingMethod out;
  out.when = m.texts("when");
  out.used = m.texts("used");
  for (const Toml& group : m.tables("ignored")) {
    for (const std::string& key : group.texts("keys")) out.ignored.push_back(key);
    LUMEN_CHECK(!group.text("because").empty(), "keys are ignored without a reason");
  }
  for (const Toml& r : m.tables("refused"))
    for (const std::string& key : r.texts("keys")) out.refused.push_back({key, r.text("because"), r.texts("unless")});
  for (const Toml& t : m.tables("told")) out.told.push_back({t.texts("when"), t.text("text")});
  if (const auto groups = m.table("groups"))
    out.groups = {groups->text("path"), groups->text("targets"), groups->texts("lifted")};
  out.activations = m.text("activations", "");
  out.cache = m.text("cache", "");
  m.refuse_unknown();
  return out;
}

const std::vector<PackingMethod>& methods() {
  static const std::vector<PackingMethod> all = [] {
    std::vector<PackingMethod> out;
    for (const Toml& m : checkpoint_tables("method")) out.push_back(parsed_method(m));
    return out;
  }();
  return all;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= path.size();) {
    const size_t dot = std::min(path.find('.', at), path.size());
    out.push_back(path.substr(at, dot - at));
    at = dot + 1;
  }
  return out;
}

// A trailing `*` of a part matches any characters.
bool fits_part(const std::string& part, const std::string& name) {
  if (!part.ends_with("*")) return part == name;
  return name.starts_with(part.substr(0, part.size() - 1));
}

// Whether a described key is this one, or an object that contains it.
bool covers(const std::string& described, const std::vector<std::string>& key) {
  const std::vector<std::string> parts = parts_of(described);
  if (parts.size() > key.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i)
    if (!fits_part(parts[i], key[i])) return false;
  return true;
}

bool is_among(const std::vector<std::string>& described, const std::vector<std::string>& key) {
  return std::any_of(described.begin(), described.end(), [&](const auto& d) { return covers(d, key); });
}

// Null, false and empty values have no effect.
bool says_something(const json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return false;
  return !((value.is_object() || value.is_array() || value.is_string()) && value.empty());
}

std::string shown(const json& value) {
  const std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "..";
}

void check_value(const PackingMethod& method, const std::vector<std::string>& key, const json& value,
                 const std::string& file) {
  if (is_among(method.used, key) || is_among(method.ignored, key)) return;
  const auto wrong = [&](const std::string& what, const std::string& hint) {
    return Error(
        Exit::user,
        fmt::format("{}: quantization_config: \"{}\" is {}, {}", file, fmt::join(key, "."), shown(value), what), hint);
  };
  for (const PackingMethod::Refused& r : method.refused) {
    if (!covers(r.key, key)) continue;
    if (!says_something(value) || std::ranges::find(r.unless, word_of(&value)) != r.unless.end()) return;
    throw wrong("which is not supported", r.because);
  }
  if (!says_something(value)) return;
  throw wrong("but the key is unknown", "if it does not affect how weights are multiplied, remove it from config.json");
}

void check_object(const PackingMethod& method, std::vector<std::string>& path, const json& value,
                  const std::string& file) {
  if (!value.is_object() || value.empty()) return check_value(method, path, value, file);
  for (const auto& [name, member] : value.items()) {
    path.push_back(name);
    if (path.size() > 16) throw user_error("{}: quantization_config: '{}' is nested too deeply", file, name);
    check_object(method, path, member, file);
    path.pop_back();
  }
}

json& at_path(json& object, const std::string& path) {
  json* at = &object;
  for (const std::string& part : parts_of(path)) at = &(*at)[part];
  return *at;
}

}  // namespace

const PackingMethod& method_of(const json& config, const std::string& file) {
  for (const PackingMethod& m : methods())
    if (holds_conditions(config, m.when)) return m;
  throw Error(Exit::user,
              fmt::format("{}: weights quantized by '{}' have a layout that is not supported", file,
                          word_of(find_in(config, "quant_method"))),
              "models/checkpoints.toml lists the supported layouts");
}

void check_keys(const PackingMethod& method, const json& config, const std::string& file) {
  if (!config.is_object()) throw user_error("{}: quantization_config is not an object", file);
  std::vector<std::string> path;
  check_object(method, path, config, file);
  for (const PackingMethod::Told& t : method.told)
    if (holds_conditions(config, t.when)) note(fmt::format("{}: {}", file, t.text));
}

std::vector<ModuleGroup> module_groups(const PackingMethod& method, const json& config, const std::string& file) {
  const PackingMethod::Groups& how = method.groups;
  const json* groups = how.path.empty() ? nullptr : find_in(config, how.path);
  if (!groups) return {{{}, config}};
  if (!groups->is_object() || groups->size() > kMostGroups)
    throw user_error("{}: quantization_config: \"{}\" is not an object of groups", file, how.path);
  std::vector<ModuleGroup> out;
  for (const auto& [name, group] : groups->items()) {
    const json* targets = find_in(group, how.targets);
    const bool are_texts = targets && targets->is_array() && !targets->empty() &&
                           std::ranges::all_of(*targets, [](const json& t) { return t.is_string(); });
    if (!are_texts)
      throw user_error("{}: quantization_config: \"{}.{}.{}\" is not a list of modules", file, how.path, name,
                       how.targets);
    ModuleGroup& g = out.emplace_back();
    for (const json& t : *targets) g.targets.push_back(t.get<std::string>());
    g.config = config;
    at_path(g.config, how.path) = json::object({{name, group}});
    for (const std::string& key : how.lifted)
      if (const json* own = find_in(group, key)) g.config[key] = *own;
  }
  if (out.empty()) out.push_back({{}, config});
  return out;
}

int target_rank(const ModuleGroup& group, const std::string& module, const std::string& file) {
  if (group.targets.empty()) return 1;
  int best = 0;
  for (const std::string& target : group.targets) {
    if (target.starts_with("re:")) {
      try {
        const std::regex pattern(target.substr(3), std::regex::ECMAScript);
        if (std::regex_search(module, pattern, std::regex_constants::match_continuous)) best = std::max(best, 2);
      } catch (const std::regex_error&) {
        throw user_error("{}: quantization_config: \"{}\" is not a regular expression", file, target);
      }
    } else if (target == module || target.ends_with("." + module)) {  // names may be those of an enclosing model
      return 3;
    } else if (target.find('.') == std::string::npos) {
      best = std::max(best, 1);
    }
  }
  return best;
}

}  // namespace lumen::model::arch
