// What a family says about keys of GGUF metadata beside its config keys: which keys it does not read and why, which it
// refuses unless they have a value that changes nothing, and which a file must have. A key of the architecture that
// nothing is said of is warned of by name. Attributes of models understood here, all inherited: gguf_unread,
// gguf_refused, gguf_required; of config keys: gguf_also, gguf_blank, gguf_values. Proved by
// tests/model/arch/keys/gguf_keys_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/family/family.h"
#include "model/file/gguf.h"

namespace lumen::model {

class GgufRules {
 public:
  explicit GgufRules(const Family& family);

  struct Rule {
    std::string key;  // as files have it; * matches any characters
    bool refused = false;
    std::vector<lang::ExprPtr> unless;  // refused keys: values that change nothing; none given: 0, false and empty
    std::string because;                // the reason, as the family's text gives it
  };
  // What GGUF files may say of a config key beside its names there ({a} stands for the architecture).
  struct Names {
    std::vector<std::string> also;  // read where none of the names is there, and never written
    std::optional<double> blank;    // a value that says nothing: as if the name were not there
    std::vector<double> values;     // those described; empty: all
  };
  const Names& names(const std::string& key) const;  // by the config key's name

  // A config key has it among its names in GGUF files.
  bool reads(const std::string& key) const;
  // The first rule for a key; null where nothing is said.
  const Rule* find(const std::string& key) const;
  const std::vector<std::string>& required() const { return required_; }

  // Error that names the key when the file lacks one that it must have.
  void require(const GgufMetadata& metadata) const;
  // Error that names the key and its value when the file says what the family refuses; `config`: all that it says.
  // Returns the keys of the architecture and of the tokenizer that nothing is said of, and that say something.
  std::vector<std::string> check(const GgufMetadata& metadata, const graph::Config& config) const;

 private:
  bool changes_nothing(const Rule& rule, const GgufValue& value, const graph::Config& config) const;
  const Family& family_;
  lang::ModelDecl decl_;
  std::vector<Rule> rules_;
  std::map<std::string, Names> names_;
  std::vector<std::string> required_;
};

// Error when a file holds something else than a model (an adapter, a part that reads pictures, measurements, a
// vocabulary alone), with what to do about it.
void require_model_file(const GgufMetadata& metadata, size_t tensors);

}  // namespace lumen::model
