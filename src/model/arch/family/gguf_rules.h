// A family's rules for GGUF metadata besides its config keys: keys that it does not read and why, keys that it refuses
// unless their value has no effect, and required keys. A key of the architecture without a rule causes a warning.
// Attributes of models that are handled here, all inherited: gguf_unread, gguf_refused, gguf_required; of config keys:
// gguf_also, gguf_blank, gguf_values. Proved by tests/model/arch/keys/gguf_keys_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/family/family.h"
#include "model/file/gguf.h"

namespace lumen::model::arch {

class GgufRules {
 public:
  explicit GgufRules(const Family& family);

  struct Rule {
    std::string key;  // as in files; * matches any characters
    bool refused = false;
    std::vector<lang::ExprPtr> unless;  // refused keys: values without effect; if empty: 0, false and empty
    std::string because;                // the reason, from the family's source
  };
  // Rules for a config key besides its names in GGUF files ({a} is the architecture).
  struct Names {
    std::vector<std::string> also;  // aliases: read where none of the names is present, never written
    std::optional<double> blank;    // a value that counts as missing
    std::vector<double> values;     // supported values; empty: all
  };
  const Names& names(const std::string& key) const;  // by the config key's name

  // Whether a config key has this name in GGUF files.
  bool reads(const std::string& key) const;
  // The first rule for a key; null where there is none.
  const Rule* find(const std::string& key) const;
  const std::vector<std::string>& required() const { return required_; }

  // Error that names the key when the file lacks a required one.
  void require(const file::GgufMetadata& metadata) const;
  // Error that names the key and its value when the family refuses it; `config`: the file's config. Returns the keys of
  // the architecture and of the tokenizer that have no rule and a value with an effect.
  std::vector<std::string> check(const file::GgufMetadata& metadata, const graph::Config& config) const;

 private:
  bool changes_nothing(const Rule& rule, const file::GgufValue& value, const graph::Config& config) const;
  const Family& family_;
  const lang::ModelDecl& decl_;
  std::vector<Rule> rules_;
  std::map<std::string, Names> names_;
  std::vector<std::string> required_;
};

// Error when a file is not a model (but an adapter, a vision projector, an importance matrix, a vocabulary only), with
// the alternative.
void require_model_file(const file::GgufMetadata& metadata, size_t tensors);

}  // namespace lumen::model::arch
