// Parameter groups of a recipe ([[group]]): other rates and decays, or none at all, for parameters by role or name.
// Proved by tests/model/recipe/groups_test.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "model/arch/family/family.h"

namespace lumen::model {

// Where several groups hold a parameter, rates multiply and later decays win; one that freezes it decides.
struct ParameterGroup {
  std::vector<std::string> values;  // parameter names; * and ? match
  std::vector<std::string> roles;   // or parameter roles
  double rate = 1;                  // factor on the learning rate
  std::optional<double> weight_decay;
  bool frozen = false;  // not trained

  static ParameterGroup read(const Toml& table);
  std::string text() const;  // as TOML
  bool holds(const Parameter& p) const;
  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

// What is trained, with the rates and decays of the groups; frozen ones are gone.
std::vector<Parameter> grouped(std::vector<Parameter> trained, const std::vector<ParameterGroup>& groups);

// Numbers that move: those of parameters that a rate of 0 holds still are not counted.
int64_t moving_count(const std::vector<Parameter>& trained);

// Error when a group holds none of them.
void require_members(const std::vector<ParameterGroup>& groups, const std::vector<Parameter>& trained);

}  // namespace lumen::model
