#include "model/arch/config_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace lumen::model {
namespace {

constexpr const char* kOwnGguf = "lumen.config.";  // keys the format has no name for
constexpr const char* kOwnHf = "lumen_config";

double checked(const std::string& file, const ConfigKey& key, double value) {
  const double limit = key.is_float ? 1e30 : 16777216.0 * 16;
  const bool whole = key.is_float || value == std::floor(value);
  if (!std::isfinite(value) || std::abs(value) > limit || (!key.is_float && value < 0) || !whole)
    throw user_error("{}: config value {} = {} is out of range", file, key.name, value);
  return value;
}

double choice(const std::string& file, const ConfigKey& key, const std::vector<std::string>& words,
              const std::string& word) {
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end() || word.empty()) {
    throw Error(Exit::user, fmt::format("{}: \"{}\" is no {} this family describes", file, word, key.name),
                fmt::format("it describes {}", fmt::join(key.choices, ", ")));
  }
  return static_cast<double>(at - words.begin());
}

std::string entry(const std::string& name, size_t i) {
  return fmt::format("{}.{}", name, i);
}

// What a key has in a config: one value, or one for each element.
std::vector<double> values_of(const ConfigKey& key, const graph::Config& config) {
  std::vector<double> out;
  for (const std::string& name : key.entries(config))
    if (const auto found = config.find(name); found != config.end()) out.push_back(found->second);
  return out;
}

// Whether a parameter's presence in the file tells the key's value.
std::set<std::string> told_by_tensors(const Family& family, const graph::Config& config) {
  std::set<std::string> out;
  for (const Parameter& p : family.all_parameters(config))
    if (!p.absent_if.empty()) out.insert(p.absent_if);
  return out;
}

// ---- GGUF

bool is_array(const GgufMetadata& metadata, const std::string& name) {
  const GgufValue* v = metadata.find(name);
  return v && std::holds_alternative<GgufArray>(*v);
}

bool is_text(const GgufMetadata& metadata, const std::string& name) {
  const GgufValue* v = metadata.find(name);
  return v && std::holds_alternative<std::string>(*v);
}

// One number or several; truth values are 0 and 1.
std::vector<double> numbers_in(const GgufMetadata& metadata, const std::string& name) {
  const GgufValue* v = metadata.find(name);
  if (const auto* flag = std::get_if<bool>(v)) return {*flag ? 1.0 : 0.0};
  if (const auto* array = std::get_if<GgufArray>(v)) {
    if (const auto* flags = std::get_if<std::vector<bool>>(array)) return {flags->begin(), flags->end()};
  }
  return metadata.numbers(name);
}

void take_gguf(const Family& family, const GgufMetadata& metadata, const ConfigKey& key, const std::string& name,
               graph::Config& values) {
  const std::string& file = metadata.source;
  if (!metadata.has(name)) return;
  if (key.has_axis) {
    if (!is_array(metadata, name)) {
      const bool other = std::any_of(family.keys().begin(), family.keys().end(), [&](const ConfigKey& k) {
        return !k.has_axis && std::find(k.gguf.begin(), k.gguf.end(), name) != k.gguf.end();
      });
      if (!other) values[key.name] = checked(file, key, numbers_in(metadata, name).at(0));
      return;
    }
    const auto numbers = numbers_in(metadata, name);
    for (size_t i = 0; i < numbers.size(); ++i) values[entry(key.name, i)] = checked(file, key, numbers[i]);
    return;
  }
  double value = 0;
  if (is_text(metadata, name) && !key.choices.empty()) {
    value = choice(file, key, key.gguf_choices, metadata.text(name));
  } else {
    const bool other = std::any_of(family.keys().begin(), family.keys().end(), [&](const ConfigKey& k) {
      return k.has_axis && std::find(k.gguf.begin(), k.gguf.end(), name) != k.gguf.end();
    });
    if (other && is_array(metadata, name)) return;
    const std::vector<double> all = numbers_in(metadata, name);
    if (all.empty()) throw user_error("{}: key '{}' is an empty array", file, name);
    // An array for a family that has one number: all must be that number.
    for (double v : all) {
      if (v != all.front())
        throw user_error("{}: key '{}' differs from layer to layer, which this family does not describe", file, name);
    }
    value = checked(file, key, all.front() / key.gguf_times);
  }
  const auto [at, added] = values.emplace(key.name, value);
  if (!added && at->second != value)
    throw user_error("{}: '{}' is {}, but {} is {} elsewhere", file, name, value, key.name, at->second);
}

GgufValue gguf_value(const ConfigKey& key, double value) {
  if (!key.choices.empty()) {
    const std::string& word = key.gguf_choices.at(static_cast<size_t>(value));
    return word;
  }
  if (key.is_float) return static_cast<float>(value * key.gguf_times);
  if (key.is_bool) return value != 0;
  return static_cast<uint32_t>(value);
}

// A key as `lumen.config.` has it: the value itself, in our words.
ConfigKey as_own(const ConfigKey& key) {
  ConfigKey own = key;
  own.gguf_choices = own.choices;
  own.gguf_plus.clear();
  own.gguf_times = 1;
  return own;
}

GgufValue gguf_values(const ConfigKey& key, const std::vector<double>& all) {
  if (key.is_float) return GgufArray(std::vector<float>(all.begin(), all.end()));
  if (key.is_bool || key.choices.size() == 2) {
    std::vector<bool> flags;
    for (double v : all) flags.push_back(v != 0);
    return GgufArray(flags);
  }
  std::vector<uint32_t> out;
  for (double v : all) out.push_back(static_cast<uint32_t>(v));
  return GgufArray(out);
}

// ---- config.json

// "a.b.c" as a member of its own, or through objects. Null when there is none.
const nlohmann::json* find_path(const nlohmann::json& object, const std::string& path) {
  if (const auto at = object.find(path); at != object.end()) return at->is_null() ? nullptr : &*at;
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return nullptr;
  const auto at = object.find(path.substr(0, dot));
  if (at == object.end() || !at->is_object()) return nullptr;
  return find_path(*at, path.substr(dot + 1));
}

void set_path(nlohmann::json& object, const std::string& path, nlohmann::json value) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) {
    object[path] = std::move(value);
    return;
  }
  nlohmann::json& inner = object[path.substr(0, dot)];
  if (!inner.is_object()) inner = nlohmann::json::object();
  set_path(inner, path.substr(dot + 1), std::move(value));
}

double hf_number(const std::string& file, const ConfigKey& key, const std::string& name, const nlohmann::json& value) {
  if (value.is_string() && !key.choices.empty()) return choice(file, key, key.choices, value.get<std::string>());
  if (value.is_string() && key.hf_words.contains(value.get<std::string>()))
    return key.hf_words.at(value.get<std::string>());
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number()) throw user_error("{}: \"{}\" is not a number", file, name);
  return checked(file, key, value.get<double>());
}

void take_hf(const std::string& file, const ConfigKey& key, const std::string& name, const nlohmann::json& value,
             graph::Config& values) {
  if (!key.has_axis || !value.is_array()) {
    values[key.name] = hf_number(file, key, name, value);
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) values[entry(key.name, i)] = hf_number(file, key, name, value[i]);
}

nlohmann::json hf_value(const ConfigKey& key, double value) {
  // A key with several words is spoken of in words.
  if (key.hf_words.size() > 1)
    for (const auto& [word, number] : key.hf_words)
      if (number == value) return word;
  if (!key.choices.empty()) return key.choices.at(static_cast<size_t>(value));
  if (key.is_bool) return value != 0;
  if (key.is_float) return value;
  return static_cast<int64_t>(value);
}

// Where a list in a file is too short for the family, the rest would silently be defaults.
void check_lengths(const Family& family, const graph::Config& given, const std::string& file) {
  graph::Config full;
  for (const ConfigKey& key : family.keys()) {
    if (!key.has_axis || given.contains(key.name) || !given.contains(entry(key.name, 0))) continue;
    if (full.empty()) full = family.config("", given);
    for (const std::string& name : key.entries(full)) {
      if (!given.contains(name))
        throw user_error("{}: the list {} is too short: it has no element '{}'", file, key.name, name);
    }
  }
}

// What GGUF files hold above a key's own value.
double added(const Family& family, const ConfigKey& key, const graph::Config& config) {
  const auto other = std::find_if(family.keys().begin(), family.keys().end(),
                                  [&](const ConfigKey& k) { return k.name == key.gguf_plus; });
  return other != family.keys().end() && family.is_used(*other, config, true) ? config.at(key.gguf_plus) : 0;
}

}  // namespace

graph::Config read_gguf_config(const Family& family, const GgufMetadata& metadata, const HasTensor& has_tensor) {
  graph::Config values;
  for (const ConfigKey& key : family.keys()) {
    for (const std::string& name : key.gguf) take_gguf(family, metadata, key, name, values);
    if (!values.contains(key.name) && !key.gguf_length.empty() && metadata.has(key.gguf_length))
      values[key.name] = checked(metadata.source, key, static_cast<double>(metadata.texts(key.gguf_length).size()));
    if (!values.contains(key.name) && key.gguf_else) values[key.name] = *key.gguf_else;
    if (!key.gguf_tensor.empty() && has_tensor) values[key.name] = has_tensor(key.gguf_tensor) ? 1 : 0;
  }
  for (const ConfigKey& key : family.keys()) {
    const auto sum = values.find(key.name);
    if (key.gguf_plus.empty() || sum == values.end()) continue;
    const auto part = values.find(key.gguf_plus);
    if (part == values.end())
      throw user_error("{}: '{}' is there, but nothing says {}", metadata.source, key.gguf.front(), key.gguf_plus);
    sum->second = checked(metadata.source, key, sum->second - part->second);
  }
  for (const ConfigKey& key : family.keys()) {
    const std::string own = kOwnGguf + key.name;
    if (!metadata.has(own)) continue;
    if (!key.has_axis) values.erase(key.name);
    take_gguf(family, metadata, as_own(key), own, values);
  }
  check_lengths(family, values, metadata.source);
  return values;
}

graph::Config read_hf_config(const Family& family, const nlohmann::json& config, const std::string& file) {
  graph::Config values;
  const auto own = config.find(kOwnHf);
  for (const ConfigKey& key : family.keys()) {
    for (const std::string& name : key.hf) {
      const nlohmann::json* value = find_path(config, name);
      if (!value) continue;
      take_hf(file, key, name, *value, values);
      break;
    }
    if (const nlohmann::json* list = key.hf_members.empty() ? nullptr : find_path(config, key.hf_members)) {
      if (!list->is_array()) throw user_error("{}: \"{}\" is not a list", file, key.hf_members);
      values[key.name] = 0;
      for (const nlohmann::json& at : *list) {
        if (!at.is_number_unsigned())
          throw user_error("{}: \"{}\" is not a list of whole numbers", file, key.hf_members);
        values[entry(key.name, at.get<uint64_t>())] = 1;
      }
    }
    if (own == config.end() || !own->is_object()) continue;
    if (const auto value = own->find(key.name); value != own->end()) take_hf(file, key, key.name, *value, values);
  }
  check_lengths(family, values, file);
  return values;
}

graph::Config write_gguf_config(const Family& family, const graph::Config& config, GgufMetadata& metadata) {
  for (const ConfigKey& key : family.keys()) {
    metadata.erase(kOwnGguf + key.name);
    const std::vector<double> all = values_of(key, config);
    if (all.empty()) continue;
    for (const std::string& name : key.gguf) {
      if (!family.is_used(key, config, true)) {
        metadata.erase(name);
      } else if (key.has_axis) {
        metadata.set(name, gguf_values(key, all));
      } else if (!key.choices.empty() && key.gguf_choices.at(static_cast<size_t>(all.front())).empty()) {
        metadata.erase(name);
      } else if (key.is_float || !key.choices.empty() || !key.gguf_plus.empty() || !metadata.has(name)) {
        // A file's own spelling of whole numbers (per layer, for instance) stays.
        metadata.set(name, gguf_value(key, all.front() + added(family, key, config)));
      }
    }
  }
  const std::set<std::string> told = told_by_tensors(family, config);
  graph::Config back = family.config("", read_gguf_config(family, metadata));
  for (const ConfigKey& key : family.keys()) {
    const std::vector<double> all = values_of(key, config);
    if (told.contains(key.name) || all.empty() || values_of(key, back) == all) continue;
    const ConfigKey own = as_own(key);
    metadata.set(kOwnGguf + key.name, key.has_axis ? gguf_values(own, all) : gguf_value(own, all.front()));
  }
  return back;
}

graph::Config config_in_gguf(const Family& family, const graph::Config& config, GgufMetadata metadata) {
  return write_gguf_config(family, config, metadata);
}

void write_hf_config(const Family& family, const graph::Config& config, nlohmann::json& json) {
  json.erase(kOwnHf);
  for (const ConfigKey& key : family.keys()) {
    const std::vector<double> all = values_of(key, config);
    if (!all.empty() && !key.hf_members.empty()) {
      nlohmann::json list = nlohmann::json::array();
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i] != 0) list.push_back(i);
      set_path(json, key.hf_members, std::move(list));
    }
    if (all.empty() || key.hf.empty()) continue;
    // Where the folder it came from says the same, its own spelling stays.
    const auto said = std::find_if(key.hf.begin(), key.hf.end(), [&](const auto& n) { return find_path(json, n); });
    if (said != key.hf.end()) {
      graph::Config now;
      take_hf("config.json", key, *said, *find_path(json, *said), now);
      graph::Config rounded = family.config("", [&] {
        graph::Config with = config;
        for (const auto& [name, value] : now) with[name] = value;
        return with;
      }());
      if (values_of(key, rounded) == all) continue;
    }
    if (!family.is_used(key, config, false)) continue;
    const std::string& name = said != key.hf.end() ? *said : key.hf.front();
    if (!key.has_axis) {
      set_path(json, name, hf_value(key, all.front()));
      continue;
    }
    nlohmann::json list = nlohmann::json::array();
    for (double v : all) list.push_back(hf_value(key, v));
    set_path(json, name, std::move(list));
  }
  const std::set<std::string> told = told_by_tensors(family, config);
  const graph::Config back = family.config("", read_hf_config(family, json, "config.json"));
  for (const ConfigKey& key : family.keys()) {
    const std::vector<double> all = values_of(key, config);
    if (told.contains(key.name) || all.empty() || values_of(key, back) == all) continue;
    nlohmann::json value = hf_value(key, all.front());
    if (key.has_axis) {
      value = nlohmann::json::array();
      for (double v : all) value.push_back(hf_value(key, v));
    }
    json[kOwnHf][key.name] = std::move(value);
  }
}

}  // namespace lumen::model
