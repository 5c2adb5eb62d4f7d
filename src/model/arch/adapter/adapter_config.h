// What adapter_config.json says, checked: sizes and scales of changes, which modules have one, and what else is in the
// file beside it. Names are those of modules of Hugging Face models. Proved by
// tests/model/arch/adapter/adapter_test.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/text/pattern/pattern.h"

namespace lumen::model {

class FolderConfig {
 public:
  // Error when a key is refused, or says what it cannot.
  explicit FolderConfig(const std::filesystem::path& path);

  const std::string& file() const { return file_; }
  bool by_root() const { return by_root_; }
  bool has_magnitudes() const { return has_magnitudes_; }
  bool has_bias() const { return has_bias_; }  // B gives a bias as well
  double rank(const std::string& target) const { return of(ranks_, target, rank_); }
  double scale(const std::string& target) const;

  // Modules that were copied before they were trained: what else uses their weight keeps the model's.
  const std::vector<std::string>& copies() const { return copies_; }
  bool is_copy(const std::string& target) const;
  // Whether that of the embedding is the output's as well, where a model has one weight for both.
  bool ties_copies() const { return ties_copies_; }
  bool ties() const { return ties_; }  // the same of changes of low rank

  // Whether a module has a change of low rank, as the config says it; nothing where that cannot be told.
  std::optional<bool> targets(const std::string& module) const;
  // Entries of a list of modules, none where they are said otherwise.
  const std::vector<std::string>& target_names() const { return targets_.names; }
  // Weights that have one, though they are no module's, as ends of their names.
  bool targets_parameter(const std::string& tensor) const;
  // Stacked matrices were taken as [E, in, out] whatever they are: what versions before that wrote is turned.
  bool is_turned_in_stacks() const { return turned_stacks_; }

  // Rows of embeddings and outputs that were trained alone: by the end of a module's name ("": the embedding's).
  struct Tokens {
    std::string module;
    std::vector<int64_t> ids;
  };
  const std::vector<Tokens>& tokens() const { return tokens_; }

 private:
  struct ByName {
    Pattern names;
    double value;
  };
  // Names of modules, or a pattern of the whole name.
  struct Modules {
    std::vector<std::string> names;
    std::optional<Pattern> pattern;
    bool is_said = false;  // else nothing is known
    bool has(const std::string& module) const;
  };

  const nlohmann::ordered_json* find(const char* key) const;  // null is absent
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
  std::vector<int64_t> layers_;           // empty: all
  std::vector<Pattern> layers_patterns_;  // of names up to the number of a layer
  std::vector<Tokens> tokens_;
};

}  // namespace lumen::model
