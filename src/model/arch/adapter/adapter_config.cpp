#include "model/arch/adapter/adapter_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/structured/json.h"
#include "model/arch/adapter/adapter_keys.h"

namespace lumen::model::arch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostConfig = 4 << 20;  // bytes

bool is_whole_match(const text::Pattern& pattern, const std::string& text) {
  text::Match match;
  uint64_t work = 0;
  return pattern.find(text, 0, &match, &work) && match.begin == 0 && match.end == text.size();
}

// Whether a module has this name, or ends with it.
bool is_named(const std::string& name, const std::string& module) {
  return module == name || module.ends_with("." + name);
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

// Stacks of versions before 0.19 are transposed; the version is recorded since 0.18.
bool turns_stacks(const std::string& version) {
  constexpr int kMinor = 19;
  if (version.empty()) return true;
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  return std::from_chars(first.ptr + 1, end, minor).ec == std::errc() && major == 0 && minor < kMinor;
}

}  // namespace

FolderConfig::FolderConfig(const std::filesystem::path& path) : file_(path.string()) {
  const std::string text = read_file(path, kMostConfig);
  parse_json(text, file_);  // it has better error messages
  json_ = ordered_json::parse(text);
  const AdapterKeys::Kind& kind = check_adapter_keys(json_, file_);
  const auto is_read = [&](const char* key) { return std::ranges::find(kind.read, key) != kind.read.end(); };
  read_modules("target_modules", targets_);
  if (is_read("token_indices")) {  // a separate kind of adapter: nothing else is changed
    read_tokens("token_indices");
    return;
  }
  copies_ = texts("modules_to_save");
  parameters_ = texts("target_parameters");
  rank_ = number("r");
  alpha_ = number("lora_alpha");
  by_root_ = flag("use_rslora");
  has_magnitudes_ = flag("use_dora");
  has_bias_ = flag("lora_bias");
  const std::vector<std::string>& tied = adapter_keys().tied;
  ties_ = flag("ensure_weight_tying");
  ties_copies_ = ties_ && std::ranges::any_of(copies_, [&](const std::string& name) {
                   return std::ranges::find(tied, last_part(name)) != tied.end();
                 });
  const ordered_json* version = find("peft_version");
  turned_stacks_ = turns_stacks(version && version->is_string() ? version->get<std::string>() : "");
  read_modules("exclude_modules", excluded_);
  read_patterns("rank_pattern", ranks_);
  read_patterns("alpha_pattern", alphas_);
  read_layers();
  read_tokens("trainable_token_indices");
}

const ordered_json* FolderConfig::find(const char* key) const {
  const auto value = json_.find(key);
  return value == json_.end() || value->is_null() ? nullptr : &*value;
}

bool FolderConfig::flag(const char* key) const {
  const ordered_json* value = find(key);
  if (!value) return false;
  if (!value->is_boolean()) throw user_error("{}: \"{}\" must be true or false", file_, key);
  return value->get<bool>();
}

std::vector<std::string> FolderConfig::texts(const char* key) const {
  std::vector<std::string> out;
  const ordered_json* value = find(key);
  if (!value) return out;
  if (!value->is_array()) throw user_error("{}: \"{}\" must be a list of names", file_, key);
  for (const ordered_json& name : *value) {
    if (!name.is_string() || name.get<std::string>().empty())
      throw user_error("{}: \"{}\" must be a list of names", file_, key);
    out.push_back(name.get<std::string>());
  }
  return out;
}

double FolderConfig::positive(const ordered_json& value, const std::string& key) const {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || !(value.get<double>() > 0))
    throw user_error("{}: \"{}\" must be a number above 0", file_, key);
  return value.get<double>();
}

double FolderConfig::number(const char* key) const {
  const auto value = json_.find(key);
  if (value == json_.end()) throw user_error("{}: \"{}\" is missing", file_, key);
  return positive(*value, key);
}

void FolderConfig::read_patterns(const char* key, std::vector<ByName>& out) const {
  const ordered_json* found = find(key);
  if (!found) return;
  if (!found->is_object()) throw user_error("{}: \"{}\" must be an object", file_, key);
  for (const auto& [name, value] : found->items()) {
    // A whole name, or its last parts.
    out.push_back({text::Pattern("^(?:.*\\.)?(?:" + name + ")$", file_ + ": " + key), positive(value, key)});
  }
}

void FolderConfig::read_modules(const char* key, Modules& out) const {
  const ordered_json* value = find(key);
  if (!value) return;
  if (!value->is_string()) {
    out.names = texts(key);
    out.is_said = true;
    return;
  }
  // "all-linear" needs the modules of the original program.
  if (value->get<std::string>() == "all-linear") return;
  try {
    out.pattern.emplace("^(?:" + value->get<std::string>() + ")$", file_ + ": " + key);
    out.is_said = true;
  } catch (const Error& error) {
    warn(fmt::format("{}; the names of target modules are not checked", error.what()));
  }
}

void FolderConfig::read_layers() {
  if (const ordered_json* layers = find("layers_to_transform"); layers && !layers->is_array())
    layers_ = ids(ordered_json::array({*layers}), "layers_to_transform");
  else if (layers)
    layers_ = ids(*layers, "layers_to_transform");
  if (layers_.empty()) return;
  const ordered_json* names = find("layers_pattern");
  std::vector<std::string> patterns;
  if (names && names->is_string() && !names->get<std::string>().empty())
    patterns = {names->get<std::string>()};
  else if (names && !names->is_string())
    patterns = texts("layers_pattern");
  if (patterns.empty()) patterns = {"[^.]*"};
  for (const std::string& p : patterns)
    layers_patterns_.emplace_back("^.*\\.(?:" + p + ")\\.[0-9]+\\.$", file_ + ": layers_pattern");
}

std::vector<int64_t> FolderConfig::ids(const ordered_json& list, const char* key) const {
  std::vector<int64_t> out;
  const auto wrong = [&] { return user_error("{}: \"{}\" must be whole numbers from 0", file_, key); };
  if (!list.is_array()) throw wrong();
  for (const ordered_json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{INT32_MAX}) throw wrong();
    out.push_back(id.get<uint64_t>());
  }
  return out;
}

void FolderConfig::read_tokens(const char* key) {
  const ordered_json* value = find(key);
  if (!value) return;
  if (!value->is_object()) {
    tokens_.push_back({"", ids(*value, key)});
  } else {
    for (const auto& [module, list] : value->items()) tokens_.push_back({module, ids(list, key)});
  }
  for (const Tokens& t : tokens_)
    if (std::set<int64_t>(t.ids.begin(), t.ids.end()).size() != t.ids.size())
      throw user_error("{}: \"{}\" names a token twice", file_, key);
}

double FolderConfig::of(const std::vector<ByName>& patterns, const std::string& target, double otherwise) {
  for (const ByName& p : patterns)
    if (is_whole_match(p.names, target)) return p.value;
  return otherwise;
}

double FolderConfig::scale(const std::string& target) const {
  const double r = rank(target);
  return of(alphas_, target, alpha_) / (by_root_ ? std::sqrt(r) : r);
}

bool FolderConfig::is_copy(const std::string& target) const {
  return std::ranges::any_of(copies_, [&](const std::string& name) { return target.ends_with(name); });
}

bool FolderConfig::Modules::has(const std::string& module) const {
  if (pattern) return is_whole_match(*pattern, module);
  return std::ranges::any_of(names, [&](const std::string& name) { return is_named(name, module); });
}

bool FolderConfig::is_in_layers(const std::string& module) const {
  if (layers_.empty()) return true;
  // The number in the name at the last position that matches a pattern.
  for (size_t end = module.rfind('.'); end != std::string::npos && end > 0; end = module.rfind('.', end - 1)) {
    const std::string begin = module.substr(0, end + 1);
    if (!std::ranges::any_of(layers_patterns_, [&](const text::Pattern& p) { return is_whole_match(p, begin); }))
      continue;
    const size_t at = module.rfind('.', end - 1) + 1;
    int64_t number = -1;
    std::from_chars(module.data() + at, module.data() + end, number);
    return std::ranges::find(layers_, number) != layers_.end();
  }
  return false;
}

std::optional<bool> FolderConfig::targets(const std::string& module) const {
  if (excluded_.is_said && excluded_.has(module)) return false;
  if (std::ranges::any_of(copies_, [&](const std::string& name) {
        return is_named(name, module) || ("." + module).find("." + name + ".") != std::string::npos;
      }))
    return false;
  if (!targets_.is_said) return find("target_modules") || parameters_.empty() ? std::nullopt : std::optional(false);
  if (!targets_.has(module)) return false;
  return targets_.pattern || is_in_layers(module);
}

bool FolderConfig::targets_parameter(const std::string& tensor) const {
  return std::ranges::any_of(parameters_, [&](const std::string& name) { return is_named(name, tensor); });
}

}  // namespace lumen::model::arch
