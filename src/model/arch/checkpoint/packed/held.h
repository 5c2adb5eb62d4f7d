// Quantized activations and KV caches of packed checkpoints: the tables [[activation]] and [[cache]] of
// models/checkpoints.toml, for readers and writers of folders. Proved by tests/model/arch/packed/held_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/file/tensors.h"
#include "number/library/library.h"

namespace lumen::model::arch {

struct HeldRule {
  std::vector<std::string> when;
  std::string format;  // a name or a definition; empty: floats, with the note `told`
  std::string told;
  std::string group;        // path to the columns of a block
  std::string scale, zero;  // tensors with one number, next to the weight; empty: fitted at run time, no zero point
  std::string also;         // alias of `scale` in files
  std::string values;       // of a cache, where `scale` is of keys
  // For writing.
  std::vector<std::string> outputs;
  std::string config;
  bool scalar = false;  // scales have no axes
};

const std::vector<HeldRule>& activation_rules();
const std::vector<HeldRule>& cache_rules();

struct HeldFormat {
  FormatRef format;
  std::optional<double> scale;
};

// The first rule that matches the config; null for floats, with a note where the config requests something else.
// `path`: of the setting in the config. Error for a setting that no rule matches.
const HeldRule* held_rule(const std::vector<HeldRule>& rules, const nlohmann::json& config, const std::string& path,
                          const std::string& file);

// The rule's format and scale, from tensors `prefix` + rule.scale and so on, whose names are added to `used`. Error
// when they are missing or not numbers.
HeldFormat read_held(const HeldRule& rule, const nlohmann::json& config, const file::TensorFile& tensors,
                     const std::string& prefix, const std::string& scale, const FormatLibrary& formats,
                     const std::string& file, std::set<std::string>& used);

// The rule of `output` whose format is equivalent to the given one, with fields at the same level (row, block or
// tensor); null when there is none.
const HeldRule* rule_of_format(const std::vector<HeldRule>& rules, const std::string& output,
                               const FormatLibrary& formats, const HeldFormat& held);
// The setting to write into the config.
nlohmann::json held_config(const HeldRule& rule, const Format& format);
// The tensor of a scale, under its full name.
file::TensorSpec scale_spec(const HeldRule& rule, const std::string& name);

}  // namespace lumen::model::arch
