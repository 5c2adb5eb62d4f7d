// The parsed and checked adapter_config.json: ranks and scales of updates, target modules, and the other contents of
// the weights file. Names are those of modules of Hugging Face models. Proved by
// tests/model/arch/adapter/adapter_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model::arch {

class FolderConfig {
 public:
  // Error when a key is refused or has an invalid value.
  explicit FolderConfig(const std::filesystem::path& path);

  const std::string& file() const { return file_; }
  bool by_root() const { return by_root_; }
  bool has_magnitudes() const { return has_magnitudes_; }
  bool has_bias() const { return has_bias_; }  // B has a bias as well (lora_bias)
  double rank(const std::string& target) const { return of(ranks_, target, rank_); }
  double scale(const std::string& target) const;

  // modules_to_save: modules that were copied before training; other users of their weight keep the model's.
  const std::vector<std::string>& copies() const { return copies_; }
  bool is_copy(const std::string& target) const;
  // Whether a copied embedding is the output's as well, in models with tied embeddings.
  bool ties_copies() const { return ties_copies_; }
  bool ties() const { return ties_; }  // the same for low-rank updates

  // Whether a module is a target by the config; nullopt where the config does not define it.
  std::optional<bool> targets(const std::string& module) const;
  // Listed target modules; empty where they are given by a pattern.
  const std::vector<std::string>& target_names() const { return targets_.names; }
  // target_parameters: tensors that are targets without being a module's weight, by the end of their name.
  bool targets_parameter(const std::string& tensor) const;
  // Stacked matrices were always taken as [E, in, out]: files of earlier versions are transposed.
  bool is_turned_in_stacks() const { return turned_stacks_; }

  // Trained rows of embeddings and outputs: by the end of a module's name ("": the embedding's).
  struct Tokens {
    std::string module;
    std::vector<int64_t> ids;
  };
  const std::vector<Tokens>& tokens() const { return tokens_; }

 private:
  struct ByName {
    text::Pattern names;
    double value;
  };
  // Names of modules, or a pattern for the whole name.
  struct Modules {
    std::vector<std::string> names;
    std::optional<text::Pattern> pattern;
    bool is_said = false;  // else the targets are unknown
    bool has(const std::string& module) const;
  };

  const nlohmann::ordered_json* find(const char* key) const;  // null if absent
  bool flag(const char* key) const;
  std::vector<std::string> texts(const char* key) const;
  double positive(const nlohmann::ordered_json& value, const std::string& key) const;
  double number(const char* key) const;
  void read_patterns(const char* key, std::vector<ByName>& out) const;
  void read_modules(const char* key, Modules& out) const;
  void read_layers();
  void read_tokens(const char* key);
  std::vector<int64_t> ids(const nlohmann::ordered_json& list, const char* key) const;
  bool is_in_layers(const std::string& module) const;
  static double of(const std::vector<ByName>& patterns, const std::string& target, double otherwise);

  std::string file_;
  nlohmann::ordered_json json_;
  double rank_ = 0, alpha_ = 0;
  bool by_root_ = false, has_magnitudes_ = false, has_bias_ = false, ties_ = false, ties_copies_ = false,
       turned_stacks_ = false;
  std::vector<ByName> ranks_, alphas_;
  std::vector<std::string> copies_, parameters_;
  Modules targets_, excluded_;
  std::vector<int64_t> layers_;                 // empty: all
  std::vector<text::Pattern> layers_patterns_;  // for names up to a layer's number
  std::vector<Tokens> tokens_;
};

}  // namespace lumen::model::arch
