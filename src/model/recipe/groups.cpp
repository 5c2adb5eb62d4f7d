#include "model/recipe/groups.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/recipe/recipe.h"
#include "model/recipe/recipe_keys.h"

namespace lumen::model::recipe {
namespace {

constexpr double kMostFactor = 1e6;

double bounded(const Toml& table, const char* key, double otherwise) {
  const double value = table.number(key, otherwise);
  if (!(value >= 0 && value <= kMostFactor))
    throw error_at(table.place(key), fmt::format("{} must be 0 to {}, not {}", key, kMostFactor, value));
  return value;
}

std::vector<std::string> one_or_many(const Toml& table, const char* key) {
  if (table.kind(key) == Toml::Kind::text) return {table.text(key)};
  return table.texts(key);
}

}  // namespace

ParameterGroup ParameterGroup::read(const Toml& table) {
  ParameterGroup g;
  g.values = one_or_many(table, "value");
  g.roles = one_or_many(table, "role");
  g.rate = bounded(table, "rate", 1);
  if (table.has("weight_decay")) g.weight_decay = bounded(table, "weight_decay", 0);
  if (table.has("frozen")) g.frozen = table.boolean("frozen");
  if (g.values.empty() && g.roles.empty())
    throw error_at(table.place(""), "a group needs 'value' or 'role'",
                   "e.g. role = \"embedding\", or value = \"layers.0.*\"");
  return g;
}

std::string ParameterGroup::text() const {
  std::string out = "[[group]]\n";
  if (!values.empty()) out += fmt::format("value = {}\n", quoted_list(values));
  if (!roles.empty()) out += fmt::format("role = {}\n", quoted_list(roles));
  if (rate != 1) out += fmt::format("rate = {}\n", rate);
  if (weight_decay) out += fmt::format("weight_decay = {}\n", *weight_decay);
  if (frozen) out += "frozen = true\n";
  return out;
}

bool ParameterGroup::holds(const arch::Parameter& p) const {
  return std::any_of(values.begin(), values.end(), [&](const std::string& v) { return matches(v, p.name); }) ||
         std::find(roles.begin(), roles.end(), p.role) != roles.end();
}

int64_t moving_count(const std::vector<arch::Parameter>& trained) {
  int64_t count = 0;
  for (const arch::Parameter& p : trained)
    if (p.rate != 0) count += p.count();
  return count;
}

std::vector<arch::Parameter> grouped(std::vector<arch::Parameter> trained, const std::vector<ParameterGroup>& groups) {
  std::vector<arch::Parameter> out;
  for (arch::Parameter& p : trained) {
    bool frozen = false;
    for (const ParameterGroup& g : groups) {
      if (!g.holds(p)) continue;
      p.rate *= g.rate;
      if (g.weight_decay) p.weight_decay = g.weight_decay;
      frozen = frozen || g.frozen;
    }
    if (!frozen) out.push_back(std::move(p));
  }
  return out;
}

void require_members(const std::vector<ParameterGroup>& groups, const std::vector<arch::Parameter>& trained) {
  for (const ParameterGroup& g : groups) {
    if (std::any_of(trained.begin(), trained.end(), [&](const arch::Parameter& p) { return g.holds(p); })) continue;
    std::vector<std::string> names = g.values;
    for (const std::string& role : g.roles) names.push_back("role " + role);
    throw Error(Exit::user, fmt::format("the group of {} matches no trained parameter", fmt::join(names, ", ")),
                "`lumen inspect` lists the parameters and their roles");
  }
  if (!trained.empty() && grouped(trained, groups).empty())
    throw user_error("the recipe's groups freeze every parameter: nothing would be trained");
}

}  // namespace lumen::model::recipe
