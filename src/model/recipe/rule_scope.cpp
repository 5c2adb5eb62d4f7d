#include "model/recipe/rule_scope.h"

#include <algorithm>

namespace lumen::model::recipe {
namespace {

constexpr std::string_view kLeast = "_at_least";

int64_t config_value(const arch::Model& model, const std::string& key, int64_t absent) {
  const auto found = model.config.find(key);
  return found == model.config.end() ? absent : static_cast<int64_t>(found->second);
}

bool has_output(const arch::Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const arch::Parameter& p) { return p.role == "output"; });
}

}  // namespace

RuleScope RuleScope::read(const Toml& table) {
  RuleScope s;
  s.architectures = table.texts("architecture");
  if (table.has("tied")) s.tied = table.boolean("tied");
  s.queries_per_key = table.integer("queries_per_key", 0);
  for (const std::string& key : table.keys()) {
    if (key == "architecture" || key == "tied" || key == "queries_per_key") continue;
    if (key.ends_with(kLeast)) {
      s.least[key.substr(0, key.size() - kLeast.size())] = table.integer(key);
    } else {
      s.values[key] = table.integer(key);
    }
  }
  return s;
}

bool RuleScope::everywhere() const {
  return architectures.empty() && !tied && values.empty() && least.empty() && queries_per_key == 0;
}

bool RuleScope::holds(const arch::Model& model) const {
  if (!architectures.empty() &&
      std::find(architectures.begin(), architectures.end(), model.family->gguf_architecture()) == architectures.end())
    return false;
  if (tied && *tied == has_output(model)) return false;
  for (const auto& [key, value] : values)
    if (config_value(model, key, 0) != value) return false;
  for (const auto& [key, value] : least)
    if (config_value(model, key, 0) < value) return false;
  const int64_t heads = config_value(model, "heads", 1), keys = config_value(model, "kv_heads", heads);
  return queries_per_key == 0 || (keys > 0 && heads / keys >= queries_per_key);
}

std::string RuleScope::text() const {
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "{ " : ", ") + part; };
  if (!architectures.empty()) {
    std::string names;
    for (const std::string& a : architectures) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", a);
    add(fmt::format("architecture = [{}]", names));
  }
  if (tied) add(fmt::format("tied = {}", *tied));
  for (const auto& [key, value] : values) add(fmt::format("{} = {}", key, value));
  for (const auto& [key, value] : least) add(fmt::format("{}{} = {}", key, kLeast, value));
  if (queries_per_key > 0) add(fmt::format("queries_per_key = {}", queries_per_key));
  return out.empty() ? "{}" : out + " }";
}

}  // namespace lumen::model::recipe
