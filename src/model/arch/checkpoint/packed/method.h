// What quantization_config of config.json may say, by the method it names: every key is used, passed over for a reason,
// or refused; and which part of it is about which module, where a config has several groups. The table [[method]] of
// models/checkpoints.toml. Proved by tests/model/arch/packed/method_test.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lumen::model {

struct PackingMethod {
  struct Refused {
    std::string key, because;
    std::vector<std::string> unless;  // words that say nothing, or what is described
  };
  struct Told {
    std::vector<std::string> when;
    std::string text;
  };
  // How a config says several things of several modules; empty `path`: it does not.
  struct Groups {
    std::string path, targets;
    std::vector<std::string> lifted;  // keys of a group that stand for those of the whole
  };
  std::vector<std::string> when;
  std::vector<std::string> used, ignored;  // paths; * ends a part that begins so
  std::vector<Refused> refused;
  std::vector<Told> told;
  Groups groups;
  std::string activations, cache;  // paths to what is said of what products read, and of keys and values; may be empty
};

// The method that a config names. Error when none does.
const PackingMethod& method_of(const nlohmann::json& quantization_config, const std::string& file);

// Error that names the first key whose value could change what is computed in a way that is not described, or that
// nobody knows. Says what is known but not computed.
void check_keys(const PackingMethod& method, const nlohmann::json& quantization_config, const std::string& file);

// A group of modules, and a config that is about them alone.
struct ModuleGroup {
  std::vector<std::string> targets;  // empty: all modules
  nlohmann::json config;
};
// Error where the groups are not as the method says.
std::vector<ModuleGroup> module_groups(const PackingMethod& method, const nlohmann::json& quantization_config,
                                       const std::string& file);

// How well a group's targets name the module of this name: 3 by its name, 2 by a pattern ("re:" and a regular
// expression from the name's beginning), 1 by a class of layers, 0 not at all. Error when a pattern is none.
int target_rank(const ModuleGroup& group, const std::string& module, const std::string& file);

}  // namespace lumen::model
