// A family's rules for config.json besides its config keys: keys that it does not read and why, keys that it refuses,
// the meaning of null, and defaults of missing keys; and formulas for keys without a GGUF name. Proved by
// tests/model/arch/keys/config_keys_test.cpp.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "model/arch/family/family.h"

namespace lumen::model::arch {

class ConfigRules {
 public:
  explicit ConfigRules(const Family& family);

  struct Rule {
    std::string key;      // a dot leads into an object
    std::string because;  // the reason, from the family's source
  };
  const std::vector<Rule>& unread() const { return unread_; }
  const std::vector<Rule>& refused() const { return refused_; }

  // Error when the file has a value that the family refuses.
  void check(const nlohmann::json& config, const std::string& file) const;
  // The same for the config's numbers.
  void check(const graph::Config& config, const std::string& file) const;
  // The config without members that other keys hide (attribute `hides`).
  nlohmann::json visible(nlohmann::json config) const;
  // Whether null has a special meaning for a config key; and its value, given all other keys.
  bool has_null(const std::string& key) const { return nulls_.contains(key); }
  double null_value(const std::string& key, const graph::Config& config) const;
  bool null_is_word(const std::string& key) const;  // an alias of one number, independent of other keys
  // Keys that GGUF files define in terms of others.
  bool has_formula(const std::string& key) const { return formulas_.contains(key); }
  double gguf_formula(const std::string& key, const graph::Config& config, int64_t element) const;
  // Lists and texts of config.json whose length is the value where the file does not say it; the first present counts.
  std::vector<std::string> lengths_of(const std::string& key) const;
  // The key whose value elements have that an object of single elements (`hf_each`) lacks; "" for their defaults.
  std::string others_of(const std::string& key) const;
  // Whether a file's list may have more elements than the key; surplus ones are ignored.
  bool may_be_longer(const std::string& key) const { return longer_.contains(key); }
  // Whether only the default is supported, so that a file must not have another value.
  bool is_fixed(const std::string& key) const;
  // Completes the `values` of a config.json with the defaults of such files.
  graph::Config complete(const graph::Config& values) const;

 private:
  const Family& family_;
  const lang::ModelDecl& decl_;
  std::vector<Rule> unread_, refused_;
  std::vector<std::pair<std::string, std::vector<std::string>>> hides_;
  std::map<std::string, lang::ExprPtr> nulls_, formulas_;
  std::vector<std::string> fixed_;
  std::vector<std::pair<std::string, Rule>> never_;  // config keys that must be 0, and the JSON key for the message
  std::set<std::string> longer_;
  std::map<std::string, std::vector<std::string>> lengths_;
  std::map<std::string, std::string> others_;
  std::string size_;  // of the defaults of config.json; "" when the family has none of its own
};

// The name of a `size` with the defaults of missing keys in config.json; not a model size.
inline constexpr const char* kConfigSize = "config.json";

// "a.b.c" as a single member, or through objects; null when there is none. The result may point to a JSON null.
const nlohmann::json* find_path(const nlohmann::json& object, const std::string& path);

}  // namespace lumen::model::arch
