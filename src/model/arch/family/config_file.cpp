#include "model/arch/family/config_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/family/config_rules.h"
#include "model/arch/family/gguf_rules.h"

namespace lumen::model::arch {
namespace {

constexpr const char* kOwnGguf = "lumen.config.";  // prefix of our own keys
constexpr const char* kOwnHf = "lumen_config";
constexpr const char* kFamily = "lumen.family";

// `name`: the file's key, where one key holds the value.
double checked(const std::string& file, const ConfigKey& key, double value, const std::string& name = "") {
  const std::string label = name.empty() || name == key.name ? key.name : fmt::format("{} ('{}')", key.name, name);
  const double limit = key.is_float ? 1e30 : 16777216.0 * 16;
  const bool whole = key.is_float || value == std::floor(value);
  if (!key.choices.empty() && value >= std::ssize(key.choices))
    throw user_error("{}: config value {} = {} is none of its {} choices", file, label, value, key.choices.size());
  if (!std::isfinite(value) || std::abs(value) > limit || (!key.is_float && value < 0) || !whole)
    throw user_error("{}: config value {} = {} is out of range", file, label, value);
  return value;
}

// `name`: the file's key.
double choice(const std::string& file, const ConfigKey& key, const std::string& name,
              const std::vector<std::string>& words, const std::string& word) {
  const auto at = std::find(words.begin(), words.end(), word);
  if (at == words.end() || word.empty()) {
    throw Error(Exit::user, fmt::format("{}: \"{}\" is \"{}\", which this family does not describe", file, name, word),
                fmt::format("it describes {}", fmt::join(key.choices, ", ")));
  }
  return at - words.begin();
}

std::string entry(const std::string& name, size_t i) {
  return fmt::format("{}.{}", name, i);
}

// The values of a key in a config: one, or one for each element.
std::vector<double> values_of(const ConfigKey& key, const graph::Config& config) {
  std::vector<double> out;
  for (const std::string& name : key.entries(config))
    if (const auto found = config.find(name); found != config.end()) out.push_back(found->second);
  return out;
}

// Keys whose value follows from the presence of a parameter in the file.
std::set<std::string> told_by_tensors(const Family& family, const graph::Config& config) {
  std::set<std::string> out;
  for (const Parameter& p : family.all_parameters(config))
    if (!p.absent_if.empty()) out.insert(p.absent_if);
  return out;
}

// ---- GGUF

bool is_array(const file::GgufMetadata& metadata, const std::string& name) {
  const file::GgufValue* v = metadata.find(name);
  return v && std::holds_alternative<file::GgufArray>(*v);
}

bool is_text(const file::GgufMetadata& metadata, const std::string& name) {
  const file::GgufValue* v = metadata.find(name);
  return v && std::holds_alternative<std::string>(*v);
}

// One number or several; booleans are 0 and 1.
std::vector<double> numbers_in(const file::GgufMetadata& metadata, const std::string& name) {
  const file::GgufValue* v = metadata.find(name);
  if (const auto* flag = std::get_if<bool>(v)) return {*flag ? 1.0 : 0.0};
  if (const auto* array = std::get_if<file::GgufArray>(v)) {
    if (const auto* flags = std::get_if<std::vector<bool>>(array)) return {flags->begin(), flags->end()};
  }
  return metadata.numbers(name);
}

// Whether a file has a key with a value other than blank.
bool says(const file::GgufMetadata& metadata, const std::optional<double>& blank, const std::string& name) {
  if (!metadata.has(name)) return false;
  if (!blank || is_array(metadata, name) || is_text(metadata, name)) return true;
  return numbers_in(metadata, name).at(0) != *blank;
}

// Whether a key with an axis, or one without, has this name.
bool has_key(const Family& family, const GgufRules& rules, const std::string& name, bool axis) {
  return std::any_of(family.keys().begin(), family.keys().end(), [&](const ConfigKey& k) {
    const auto is_among = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
    return k.has_axis == axis && (is_among(k.gguf) || is_among(rules.names(k.name).also));
  });
}

void check_described(const Family& family, const std::vector<double>& values, const std::string& file,
                     const std::string& name, double value) {
  if (values.empty() || std::find(values.begin(), values.end(), value) != values.end()) return;
  throw Error(Exit::user,
              fmt::format("{}: '{}' is {}, which the family '{}' does not describe", file, name, value, family.name()),
              fmt::format("it describes {} there", fmt::join(values, ", ")));
}

void take_gguf(const Family& family, const GgufRules& rules, const file::GgufMetadata& metadata, const ConfigKey& key,
               const std::string& name, graph::Config& values) {
  const std::string& file = metadata.source;
  const GgufRules::Names& names = rules.names(key.name);
  if (!says(metadata, names.blank, name)) return;
  if (key.has_axis) {
    if (!is_array(metadata, name)) {
      if (!has_key(family, rules, name, false))
        values[key.name] = checked(file, key, numbers_in(metadata, name).at(0), name);
      return;
    }
    const auto numbers = numbers_in(metadata, name);
    for (size_t i = 0; i < numbers.size(); ++i) values[entry(key.name, i)] = checked(file, key, numbers[i], name);
    return;
  }
  double value = 0;
  if (is_text(metadata, name) && !key.choices.empty()) {
    value = choice(file, key, name, key.gguf_choices, metadata.text(name));
  } else {
    if (is_array(metadata, name) && !key.gguf_largest && has_key(family, rules, name, true)) return;
    std::vector<double> all = numbers_in(metadata, name);
    if (key.gguf_largest && !all.empty()) all = {std::ranges::max(all)};
    if (all.empty()) throw user_error("{}: key '{}' is an empty array", file, name);
    // An array for a family that has one number: all elements must be equal.
    for (double v : all) {
      if (v != all.front())
        throw user_error("{}: key '{}' differs from layer to layer, which this family does not describe", file, name);
    }
    value = checked(file, key, all.front() / key.gguf_times, name);
    check_described(family, names.values, file, name, value);
  }
  const auto [at, added] = values.emplace(key.name, value);
  if (!added && at->second != value)
    throw user_error("{}: '{}' is {}, but {} is {} elsewhere", file, name, value, key.name, at->second);
}

file::GgufValue gguf_value(const ConfigKey& key, double value) {
  if (!key.choices.empty()) {
    const std::string& word = key.gguf_choices.at(static_cast<size_t>(value));
    return word;
  }
  if (key.is_float) return static_cast<float>(value * key.gguf_times);
  if (key.is_bool) return value != 0;
  return static_cast<uint32_t>(value);
}

// A key as stored under `lumen.config.`: the unmodified value, with our own words.
ConfigKey as_own(const ConfigKey& key) {
  ConfigKey own = key;
  own.gguf_choices = own.choices;
  own.gguf_plus.clear();
  own.gguf_times = 1;
  return own;
}

file::GgufValue gguf_values(const ConfigKey& key, const std::vector<double>& all) {
  if (key.is_float) return file::GgufArray(std::vector<float>(all.begin(), all.end()));
  if (key.is_bool || key.choices.size() == 2) {
    std::vector<bool> flags;
    for (double v : all) flags.push_back(v != 0);
    return file::GgufArray(flags);
  }
  std::vector<uint32_t> out;
  for (double v : all) out.push_back(static_cast<uint32_t>(v));
  return file::GgufArray(out);
}

// ---- config.json

// The value at a path; null counts as missing.
const nlohmann::json* said_at(const nlohmann::json& object, const std::string& path) {
  const nlohmann::json* found = find_path(object, path);
  return found && !found->is_null() ? found : nullptr;
}

// Whether a value is this word, or a text or list with it; for "" whether it is neither 0, false nor empty.
bool has_word(const nlohmann::json& value, const std::string& word) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return !text.empty() && text.find(word) != std::string::npos;
  }
  if (word.empty()) return value.is_structured() ? !value.empty() : value != false && value != 0;
  return value.is_array() && std::ranges::any_of(value, [&](const auto& one) { return one == word; });
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
  if (value.is_string() && key.hf_words.contains(value.get<std::string>()))
    return key.hf_words.at(value.get<std::string>());
  if (value.is_string() && key.hf_words.contains("*")) return key.hf_words.at("*");
  if (value.is_string() && !key.choices.empty()) return choice(file, key, name, key.choices, value.get<std::string>());
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number()) throw user_error("{}: \"{}\" is not a number", file, name);
  return checked(file, key, value.get<double>(), name);
}

void take_hf(const std::string& file, const ConfigKey& key, const std::string& name, const nlohmann::json& value,
             graph::Config& values) {
  if (!key.has_axis || !value.is_array()) {
    values[key.name] = hf_number(file, key, name, value);
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) values[entry(key.name, i)] = hf_number(file, key, name, value[i]);
}

// The shortest decimal number that is equal in f32, the type in which models store it.
double shortest(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

nlohmann::json hf_value(const ConfigKey& key, double value) {
  // A key with several words is written as a word. Words of a key with choices are only aliases.
  if (key.hf_words.size() > 1 && key.choices.empty())
    for (const auto& [word, number] : key.hf_words)
      if (number == value) return word;
  if (!key.choices.empty()) return key.choices.at(static_cast<size_t>(value));
  if (key.is_bool) return value != 0;
  if (key.is_float) return shortest(value);
  return static_cast<int64_t>(value);
}

using Complete = std::function<graph::Config(const graph::Config&)>;  // completes the config from the values in a file

// Without list elements.
graph::Config single_values(graph::Config values) {
  std::erase_if(values, [](const auto& value) { return value.first.find('.') != std::string::npos; });
  return values;
}

// Removes surplus list elements, of keys that may have more.
void drop_surplus(const Family& family, const ConfigRules& rules, graph::Config& values) {
  for (const ConfigKey& key : family.keys()) {
    if (!rules.may_be_longer(key.name) || !values.contains(entry(key.name, 0))) continue;
    const size_t count = key.entries(rules.complete(single_values(values))).size();
    for (size_t i = count; values.erase(entry(key.name, i)) > 0; ++i) {
    }
  }
}

// Keys given by a string of repeating letters, one element each.
void take_letters(const Family& family, const nlohmann::json& config, const std::string& file, const ConfigRules& rules,
                  graph::Config& values) {
  for (const ConfigKey& key : family.keys()) {
    const nlohmann::json* text = key.hf_letters.empty() ? nullptr : said_at(config, key.hf_letters);
    if (!text || !text->is_string()) continue;
    const auto letters = text->get<std::string>();
    const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || c == '*' || c == '-'; };
    if (letters.empty() || letters.size() > 4096 || !std::all_of(letters.begin(), letters.end(), is_letter))
      throw user_error("{}: \"{}\" is \"{}\", not a pattern of letters", file, key.hf_letters, letters);
    const std::vector<std::string> entries = key.entries(rules.complete(values));
    for (size_t i = 0; i < entries.size(); ++i)
      values[entries[i]] = letters.substr(i % letters.size(), 1) == key.hf_letter;
  }
}

// Numbers of single elements, members of an object that has no other members. Returns those of a key with one value,
// which is that of the last element.
graph::Config single_elements(const Family& family, const nlohmann::json& config, const std::string& file,
                              const ConfigRules& rules, const graph::Config& values) {
  constexpr std::string_view kElement = ".{i}.";
  graph::Config out;
  std::map<std::string, std::set<std::string>> known;  // by object
  const auto split = [&](const ConfigKey& key) {
    const size_t at = key.hf_each.find(kElement);
    LUMEN_CHECK(at != std::string::npos, "hf_each \"{}\" of {}", key.hf_each, family.name());
    return std::pair(key.hf_each.substr(0, at), key.hf_each.substr(at + kElement.size()));
  };
  for (const ConfigKey& key : family.keys())
    if (!key.hf_each.empty()) known[split(key).first].insert(split(key).second);
  for (const auto& [name, members] : known) {
    const nlohmann::json* object = said_at(config, name);
    if (!object) continue;
    if (!object->is_object()) throw user_error("{}: \"{}\" is not an object", file, name);
    for (const auto& [number, element] : object->items()) {
      const bool is_number = !number.empty() && number.size() < 6 &&
                             std::ranges::all_of(number, [](char digit) { return digit >= '0' && digit <= '9'; });
      if (!is_number || !element.is_object())
        throw user_error("{}: \"{}\" has the member \"{}\", which is not of a layer", file, name, number);
      for (const auto& [member, value] : element.items())
        if (!members.contains(member))
          throw user_error("{}: \"{}.{}.{}\" is {}, which the family '{}' does not describe", file, name, number,
                           member, value.dump(), family.name());
    }
    for (const ConfigKey& key : family.keys()) {
      if (key.hf_each.empty() || split(key).first != name) continue;
      int64_t last = -1;
      for (const auto& [number, element] : object->items()) {
        const auto value = element.find(split(key).second);
        const int64_t i = std::stoll(number);
        if (value == element.end() || (!key.has_axis && i < last)) continue;
        const std::string path = fmt::format("{}.{}.{}", name, number, split(key).second);
        out[key.has_axis ? entry(key.name, static_cast<size_t>(i)) : key.name] = hf_number(file, key, path, *value);
        last = i;
      }
      const std::string others = rules.others_of(key.name);
      if (others.empty()) continue;
      const graph::Config full = rules.complete(values);
      for (const std::string& one : key.entries(full)) out.try_emplace(one, full.at(others));
    }
  }
  return out;
}

// Where a list in a file is too short for the family, the rest would silently be defaults. `names`: the file's keys.
void check_lengths(const Family& family, const graph::Config& given, const Complete& complete,
                   const std::map<std::string, std::string>& names, const std::string& file) {
  graph::Config full;
  for (const ConfigKey& key : family.keys()) {
    if (!key.has_axis || given.contains(key.name)) continue;
    size_t count = 0;
    while (given.contains(entry(key.name, count))) ++count;
    if (count == 0) continue;
    if (full.empty()) full = complete(single_values(given));
    const size_t wanted = key.entries(full).size();
    const auto name = names.find(key.name);
    if (count != wanted)
      throw user_error("{}: the list \"{}\" has {} elements, but this model needs {}", file,
                       name == names.end() ? key.name : name->second, count, wanted);
  }
}

// Sets the listed elements to 1; indices from `count` on belong to no layer.
void take_members(const std::string& file, const ConfigKey& key, const nlohmann::json& list, size_t count,
                  graph::Config& values) {
  if (!list.is_array()) throw user_error("{}: \"{}\" is not a list", file, key.hf_members);
  values[key.name] = 0;
  for (const nlohmann::json& at : list) {
    if (!at.is_number_unsigned()) throw user_error("{}: \"{}\" is not a list of whole numbers", file, key.hf_members);
    if (at.get<uint64_t>() < count) values[entry(key.name, at.get<uint64_t>())] = 1;
  }
}

// Keys of which only the default is supported.
void check_fixed(const Family& family, const ConfigRules& rules, const graph::Config& given,
                 const std::map<std::string, std::string>& names, const std::string& file) {
  graph::Config without = single_values(given);
  const size_t all = without.size();
  std::erase_if(without, [&](const auto& value) { return rules.is_fixed(value.first); });
  if (without.size() == all) return;
  const graph::Config usual = rules.complete(without);
  for (const ConfigKey& key : family.keys()) {
    const auto value = given.find(key.name);
    if (!rules.is_fixed(key.name) || value == given.end()) continue;
    const double only = usual.at(key.name), said = key.is_float ? static_cast<float>(value->second) : value->second;
    if (said == only) continue;
    const auto name = names.find(key.name);
    throw Error(Exit::user,
                fmt::format("{}: \"{}\" is {}, which the family '{}' does not describe", file,
                            name == names.end() ? key.name : name->second, hf_value(key, said).dump(), family.name()),
                fmt::format("it describes {} there", hf_value(key, only).dump()));
  }
}

// Whether a key is written as null: where null is an alias of its value, and, where the key has no meaning in this
// config, a reader would use another value without it.
bool is_null(const ConfigRules& rules, const ConfigKey& key, const graph::Config& config, bool used) {
  if (key.has_axis || key.is_bool || !rules.has_null(key.name)) return false;
  if (rules.null_value(key.name, config) != config.at(key.name)) return false;
  if (used) return rules.null_is_word(key.name);
  graph::Config without = config;
  without.erase(key.name);
  return rules.complete(without).at(key.name) != config.at(key.name);
}

// Calls `write` for each key that a reader of the file so far gets wrong. Writing one key may change defaults of
// others, so the file is read again. Returns the keys.
std::vector<std::string> each_misread(const Family& family, const graph::Config& config,
                                      const std::function<graph::Config()>& read,
                                      const std::function<void(const ConfigKey&, const std::vector<double>&)>& write) {
  const std::set<std::string> told = told_by_tensors(family, config);
  std::set<std::string> written;
  for (bool again = true; again;) {
    again = false;
    const graph::Config back = read();
    for (const ConfigKey& key : family.keys()) {
      const std::vector<double> all = values_of(key, config);
      if (told.contains(key.name) || all.empty() || values_of(key, back) == all) continue;
      if (!written.insert(key.name).second) continue;
      write(key, all);
      again = true;
    }
  }
  return {written.begin(), written.end()};
}

// The amount that GGUF files add to a key's value.
double added(const Family& family, const ConfigKey& key, const graph::Config& config) {
  const auto other = std::find_if(family.keys().begin(), family.keys().end(),
                                  [&](const ConfigKey& k) { return k.name == key.gguf_plus; });
  return other != family.keys().end() && family.is_used(*other, config, true) ? config.at(key.gguf_plus) : 0;
}

}  // namespace

std::string own_gguf_key(const ConfigKey& key) {
  return kOwnGguf + key.name;
}

graph::Config read_gguf_config(const Family& family, const file::GgufMetadata& metadata, const HasTensor& has_tensor) {
  graph::Config values;
  const GgufRules gguf(family);
  for (const ConfigKey& key : family.keys()) {
    const GgufRules::Names& names = gguf.names(key.name);
    const auto is_there = [&](const std::string& name) { return says(metadata, names.blank, name); };
    for (const std::string& name : key.gguf) take_gguf(family, gguf, metadata, key, name, values);
    if (const auto other = std::find_if(names.also.begin(), names.also.end(), is_there);
        other != names.also.end() && std::none_of(key.gguf.begin(), key.gguf.end(), is_there))
      take_gguf(family, gguf, metadata, key, *other, values);
    if (!values.contains(key.name) && !key.gguf_length.empty() && metadata.has(key.gguf_length))
      values[key.name] = checked(metadata.source, key, metadata.texts(key.gguf_length).size());
    if (!values.contains(key.name) && key.gguf_else) values[key.name] = *key.gguf_else;
    if (!key.gguf_tensor.empty() && has_tensor) values[key.name] = has_tensor(key.gguf_tensor) ? 1 : 0;
  }
  for (const ConfigKey& key : family.keys()) {
    const auto sum = values.find(key.name);
    if (key.gguf_plus.empty() || sum == values.end()) continue;
    const auto part = values.find(key.gguf_plus);
    if (part == values.end())
      throw user_error("{}: '{}' is present, but {} is missing", metadata.source, key.gguf.front(), key.gguf_plus);
    sum->second = checked(metadata.source, key, sum->second - part->second);
  }
  const ConfigRules rules(family);
  for (const ConfigKey& key : family.keys()) {
    if (!rules.has_formula(key.name) || values.contains(key.name)) continue;
    const graph::Config so_far = family.config("", values);
    const std::vector<std::string> entries = key.entries(so_far);
    for (size_t i = 0; i < entries.size(); ++i)
      values[entries[i]] = checked(metadata.source, key, rules.gguf_formula(key.name, so_far, int64_t(i)));
  }
  // Keys that only formulas need are not part of the model's config.
  if (has_tensor) {
    const graph::Config all = family.config("", values);
    for (const ConfigKey& key : family.keys())
      if (!key.gguf_tensor.empty() && key.gguf.empty() && key.hf.empty() && !family.is_used(key, all, true))
        values.erase(key.name);
  }
  for (const ConfigKey& key : family.keys()) {
    const std::string own = own_gguf_key(key);
    if (!metadata.has(own)) continue;
    if (!key.has_axis) values.erase(key.name);
    take_gguf(family, gguf, metadata, as_own(key), own, values);
  }
  check_lengths(
      family, values, [&](const graph::Config& some) { return family.config("", some); }, {}, metadata.source);
  return values;
}

graph::Config read_hf_config(const Family& family, const nlohmann::json& given, const std::string& file) {
  const ConfigRules rules(family);
  rules.check(given, file);
  const nlohmann::json config = rules.visible(given);
  graph::Config values;
  std::vector<const ConfigKey*> nulls;
  std::map<std::string, std::string> names;  // the file's keys
  const auto own = config.find(kOwnHf);
  for (const ConfigKey& key : family.keys()) {
    bool said = false;
    for (const std::string& name : key.hf) {
      const nlohmann::json* value = said_at(config, name);
      if (!value) continue;
      take_hf(file, key, name, *value, values);
      names[key.name] = name;
      said = true;
      break;
    }
    for (const std::string& name : rules.lengths_of(key.name)) {
      const nlohmann::json* counted = said ? nullptr : said_at(config, name);
      if (!counted || !(counted->is_array() || counted->is_string())) continue;
      const bool is_list = counted->is_array();
      values[key.name] = double(is_list ? counted->size() : counted->get_ref<const std::string&>().size());
      said = true;
    }
    if (!said && rules.has_null(key.name)) {
      const auto says_null = [&](const std::string& name) {
        const nlohmann::json* value = find_path(config, name);
        return value && value->is_null();
      };
      if (std::any_of(key.hf.begin(), key.hf.end(), says_null)) nulls.push_back(&key);
    }
    if (own == config.end() || !own->is_object()) continue;
    if (const auto value = own->find(key.name); value != own->end()) {
      std::erase(nulls, &key);
      take_hf(file, key, key.name, *value, values);
      names[key.name] = fmt::format("{}.{}", kOwnHf, key.name);
    }
  }
  drop_surplus(family, rules, values);
  check_fixed(family, rules, values, names, file);
  check_lengths(family, values, [&](const graph::Config& some) { return rules.complete(some); }, names, file);
  take_letters(family, config, file, rules, values);
  for (const auto& [name, value] : single_elements(family, config, file, rules, values))
    values.try_emplace(name, value);
  for (const ConfigKey& key : family.keys())
    if (const nlohmann::json* list = key.hf_members.empty() ? nullptr : said_at(config, key.hf_members))
      take_members(file, key, *list, key.entries(rules.complete(values)).size(), values);
  // The meaning of null may depend on other keys.
  if (!nulls.empty()) {
    const graph::Config others = rules.complete(values);
    for (const ConfigKey* key : nulls) values.try_emplace(key->name, rules.null_value(key->name, others));
  }
  graph::Config full = rules.complete(values);
  rules.check(full, file);
  return full;
}

graph::Config write_gguf_config(const Family& family, const graph::Config& config, file::GgufMetadata& metadata) {
  const GgufRules rules(family);
  for (const ConfigKey& key : family.keys()) {
    metadata.erase(own_gguf_key(key));
    for (const std::string& name : rules.names(key.name).also) metadata.erase(name);
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
        // A file's own form of integers (per layer, for instance) is kept.
        metadata.set(name, gguf_value(key, all.front() + added(family, key, config)));
      }
    }
  }
  const graph::Config back = family.config("", read_gguf_config(family, metadata));
  each_misread(
      family, config, [&] { return family.config("", read_gguf_config(family, metadata)); },
      [&](const ConfigKey& key, const std::vector<double>& all) {
        const ConfigKey own = as_own(key);
        metadata.set(own_gguf_key(key), key.has_axis ? gguf_values(own, all) : gguf_value(own, all.front()));
      });
  return back;
}

graph::Config config_in_gguf(const Family& family, const graph::Config& config, file::GgufMetadata metadata) {
  return write_gguf_config(family, config, metadata);
}

std::vector<std::string> write_hf_config(const Family& family, const graph::Config& config, nlohmann::json& json) {
  const ConfigRules rules(family);
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
    // Where the original folder has an equal value, its form is kept.
    const auto said = std::find_if(key.hf.begin(), key.hf.end(), [&](const auto& n) { return said_at(json, n); });
    if (said != key.hf.end()) {
      graph::Config now;
      take_hf("config.json", key, *said, *said_at(json, *said), now);
      graph::Config rounded = family.config("", [&] {
        graph::Config with = config;
        for (const auto& [name, value] : now)
          if (name == key.name || config.contains(name)) with[name] = value;  // lists may be longer
        return with;
      }());
      if (values_of(key, rounded) == all) continue;
    }
    const bool used = family.is_used(key, config, false);
    if (is_null(rules, key, config, used)) set_path(json, said != key.hf.end() ? *said : key.hf.front(), nullptr);
    if (!used || is_null(rules, key, config, used)) continue;
    const std::string& name = said != key.hf.end() ? *said : key.hf.front();
    if (!key.has_axis) {
      set_path(json, name, hf_value(key, all.front()));
      continue;
    }
    nlohmann::json list = nlohmann::json::array();
    for (double v : all) list.push_back(hf_value(key, v));
    set_path(json, name, std::move(list));
  }
  return each_misread(
      family, config, [&] { return read_hf_config(family, json, "config.json"); },
      [&](const ConfigKey& key, const std::vector<double>& all) {
        nlohmann::json value = hf_value(key, all.front());
        if (key.has_axis) {
          value = nlohmann::json::array();
          for (double v : all) value.push_back(hf_value(key, v));
        }
        json[kOwnHf][key.name] = std::move(value);
      });
}

std::string architecture_of(const nlohmann::json& config) {
  const nlohmann::json* names = find_path(config, "architectures");
  const bool is_list = names && names->is_array() && !names->empty() && names->front().is_string();
  return is_list ? names->front().get<std::string>() : "";
}

FamilyRef family_of_config(const Library& library, const nlohmann::json& config) {
  const nlohmann::json* type = find_path(config, "model_type");
  return library.family_of_hf(architecture_of(config), type && type->is_string() ? type->get<std::string>() : "",
                              [&](const std::string& key, const std::string& word) {
                                const nlohmann::json* value = said_at(config, key);
                                return value && has_word(*value, word);
                              });
}

FamilyRef family_of_file(const Library& library, const file::GgufMetadata& metadata) {
  const std::string architecture = metadata.text("general.architecture");
  if (metadata.has(kFamily)) {
    const FamilyRef named = library.family(metadata.text(kFamily));
    if (named->gguf_architecture() != architecture)
      throw user_error("{}: '{}' is '{}', a family of the architecture '{}', not of '{}'", metadata.source, kFamily,
                       named->name(), named->gguf_architecture(), architecture);
    return named;
  }
  return library.family_of_gguf(
      architecture, [&](const std::string& key) { return metadata.has(key) ? metadata.number(key, 0) : 0; });
}

void name_family(const Family& family, file::GgufMetadata& metadata) {
  metadata.erase(kFamily);
  const FamilyRef found = family_of_file(family.library(), metadata);
  if (found->name() != family.name()) metadata.set(kFamily, family.name());
}

}  // namespace lumen::model::arch
