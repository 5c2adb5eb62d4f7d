// Keys of quantization_config in config.json, by quantization method: every key is used, ignored for a reason, or
// refused; and which part applies to which module, where a config has several groups. The table [[method]] of
// models/checkpoints.toml. Proved by tests/model/arch/packed/method_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model::arch {

struct PackingMethod {
  struct Refused {
    std::string key, because;
    std::vector<std::string> unless;  // values without effect, or supported ones
  };
  struct Told {
    std::vector<std::string> when;
    std::string text;
  };
  // Groups of modules with different settings; empty `path`: none.
  struct Groups {
    std::string path, targets;
    std::vector<std::string> lifted;  // keys of a group that replace those of the whole config
  };
  std::vector<std::string> when;
  std::vector<std::string> used, ignored;  // paths; a trailing * matches any suffix of a part
  std::vector<Refused> refused;
  std::vector<Told> told;
  Groups groups;
  std::string activations, cache;  // paths to the settings of activations, and of the KV cache; may be empty
};

// The method of a config. Error when none matches.
const PackingMethod& method_of(const nlohmann::json& quantization_config, const std::string& file);

// Error that names the first key whose value could change the computation in an unsupported way, or that is unknown.
// Notes supported keys that are not computed.
void check_keys(const PackingMethod& method, const nlohmann::json& quantization_config, const std::string& file);

// A group of modules, and the config that applies to them.
struct ModuleGroup {
  std::vector<std::string> targets;  // empty: all modules
  nlohmann::json config;
};
// Error where the groups do not have the form of the method.
std::vector<ModuleGroup> module_groups(const PackingMethod& method, const nlohmann::json& quantization_config,
                                       const std::string& file);

// How specifically a group's targets match a module: 3 by its name, 2 by a pattern ("re:" and a regular expression that
// matches from the start), 1 by a layer class, 0 not at all. Error when a pattern is malformed.
int target_rank(const ModuleGroup& group, const std::string& module, const std::string& file);

}  // namespace lumen::model::arch
