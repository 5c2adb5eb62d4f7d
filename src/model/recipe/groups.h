// Parameter groups of a recipe ([[group]]): learning-rate factors, weight decays or freezing for parameters by role or
// name. Proved by tests/model/recipe/groups_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "model/arch/family/family.h"

namespace lumen::model::recipe {

// For a parameter of several groups, the rates multiply, the last weight decay wins, and one `frozen` suffices.
struct ParameterGroup {
  std::vector<std::string> values;  // parameter names; * and ? match
  std::vector<std::string> roles;   // or parameter roles
  double rate = 1;                  // factor on the learning rate
  std::optional<double> weight_decay;
  bool frozen = false;  // not trained

  static ParameterGroup read(const Toml& table);
  std::string text() const;  // as TOML
  bool holds(const arch::Parameter& p) const;
  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// The trained parameters with the groups' rates and weight decays applied; frozen ones are removed.
std::vector<arch::Parameter> grouped(std::vector<arch::Parameter> trained, const std::vector<ParameterGroup>& groups);

// The number of elements that are updated: parameters with a rate of 0 are not counted.
int64_t moving_count(const std::vector<arch::Parameter>& trained);

// Error when a group matches none of them.
void require_members(const std::vector<ParameterGroup>& groups, const std::vector<arch::Parameter>& trained);

}  // namespace lumen::model::recipe
