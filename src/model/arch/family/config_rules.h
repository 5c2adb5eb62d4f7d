// What a family says about config.json beside its config keys: which keys it does not read and why, which it refuses,
// what null means, and what a file means that says nothing; and what GGUF files say of keys they have no name for.
// Proved by tests/model/arch/keys/config_keys_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "model/arch/family/family.h"

namespace lumen::model {

class ConfigRules {
 public:
  explicit ConfigRules(const Family& family);

  struct Rule {
    std::string key;      // a dot leads into an object
    std::string because;  // the reason, as the family's text gives it
  };
  const std::vector<Rule>& unread() const { return unread_; }
  const std::vector<Rule>& refused() const { return refused_; }

  // Error when the file says something that the family refuses.
  void check(const nlohmann::json& config, const std::string& file) const;
  // The same of what it says as numbers.
  void check(const graph::Config& config, const std::string& file) const;
  // The config without what other keys hide ("a file that has this key is not read at those").
  nlohmann::json visible(nlohmann::json config) const;
  // Whether null has a meaning of its own for a config key; what it is, where all other keys are known.
  bool has_null(const std::string& key) const { return nulls_.contains(key); }
  double null_value(const std::string& key, const graph::Config& config) const;
  bool null_is_word(const std::string& key) const;  // for one number, whatever the other keys are
  // What GGUF files say of a key in terms of others.
  bool has_formula(const std::string& key) const { return formulas_.contains(key); }
  double gguf_formula(const std::string& key, const graph::Config& config) const;
  // Whether a file's list may have more elements than the key, which say nothing.
  bool may_be_longer(const std::string& key) const { return longer_.contains(key); }
  // Whether only the default is described, so that a file must not say anything else.
  bool is_fixed(const std::string& key) const;
  // All numbers of a config.json that says `values`: the rest is what such files mean by default.
  graph::Config complete(const graph::Config& values) const;

 private:
  const Family& family_;
  lang::ModelDecl decl_;
  std::vector<Rule> unread_, refused_;
  std::vector<std::pair<std::string, std::vector<std::string>>> hides_;
  std::map<std::string, lang::ExprPtr> nulls_, formulas_;
  std::vector<std::string> fixed_;
  std::vector<std::pair<std::string, Rule>> never_;  // config keys that must be 0, and the key of config.json to blame
  std::set<std::string> longer_;
  std::string size_;  // of the defaults of config.json; "" when the family has none of its own
};

// A family's declaration with all that it takes from others.
lang::ModelDecl complete_declaration(const Family& family);

// The name of a `size` that holds what a config.json means that lacks keys; no size of models.
inline constexpr const char* kConfigSize = "config.json";

// "a.b.c" as a member of its own, or through objects; null when there is none. What it points to may be a JSON null.
const nlohmann::json* find_path(const nlohmann::json& object, const std::string& path);

}  // namespace lumen::model
