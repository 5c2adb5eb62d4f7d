// In what numbers a checkpoint's programs hold what products read, and keys and values in the cache: the tables
// [[activation]] and [[cache]] of models/checkpoints.toml, for those who read folders and those who write them. Proved
// by tests/model/arch/packed/held_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/file/tensors.h"
#include "number/library/library.h"

namespace lumen::model {

struct HeldRule {
  std::vector<std::string> when;
  std::string format;  // a name or a text; empty: floats, as `told` says
  std::string told;
  std::string group;        // path to the columns of a block
  std::string scale, zero;  // tensors of one number beside what is held; empty: fitted while the model runs, none
  std::string also;         // another name of `scale` in files
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

// The first rule that describes the config; null where nothing is held in few bits, which is told where the config says
// otherwise. `path`: where it says so.
// Error when it says something there that no rule describes.
const HeldRule* held_rule(const std::vector<HeldRule>& rules, const nlohmann::json& config, const std::string& path,
                          const std::string& file);

// The rule's format and scale, of tensors `prefix` + rule.scale and so on, whose names are added to `used`. Error when
// they are missing or no numbers.
HeldFormat read_held(const HeldRule& rule, const nlohmann::json& config, const TensorFile& tensors,
                     const std::string& prefix, const std::string& scale, const FormatLibrary& formats,
                     const std::string& file, std::set<std::string>& used);

// The rule of `output` that holds the format's numbers, fields of rows, blocks and the whole alike; null when none
// does.
const HeldRule* rule_of_format(const std::vector<HeldRule>& rules, const std::string& output,
                               const FormatLibrary& formats, const HeldFormat& held);
// What the config says of it.
nlohmann::json held_config(const HeldRule& rule, const Format& format);
// The tensor of a scale, under its whole name.
TensorSpec scale_spec(const HeldRule& rule, const std::string& name);

}  // namespace lumen::model
