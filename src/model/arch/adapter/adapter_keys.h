// The table of models/adapters.toml: the keys of adapter files that are read, those that have no effect and why, and
// those that are refused. Proved by tests/model/arch/adapter/adapter_keys_test.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/file/gguf.h"

namespace lumen::model::arch {

struct AdapterKeys {
  struct Rule {
    std::vector<std::string> keys;  // * matches any suffix
    std::string because, instead;   // the reason, and for refused ones the alternative
  };
  enum class Verdict { unknown, read, unread, refused };
  struct Use {
    Verdict verdict = Verdict::unknown;
    const Rule* rule = nullptr;  // of unread and refused keys
  };
  struct Values {  // the supported values of a key
    std::string key;
    std::vector<std::string> known;
    std::string because, instead;
  };
  struct Kind {
    std::string name;  // "peft_type"; "" for GGUF files
    std::vector<std::string> read;
    std::vector<Rule> unread, refused;
    std::vector<Values> values;
    Use use_of(const std::string& key) const;  // by the longest matching entry
  };

  std::vector<Kind> kinds;        // supported kinds
  std::vector<Rule> other;        // refused kinds, as keys
  std::vector<std::string> tied;  // modules that may be tied, the embedding first
  Kind gguf;
};
const AdapterKeys& adapter_keys();

// The kind of an adapter_config.json, all of whose keys are read or without effect. Otherwise an Error naming `file`,
// the key and the alternative.
const AdapterKeys::Kind& check_adapter_keys(const nlohmann::ordered_json& config, const std::string& file);
// The same for a GGUF file's metadata.
void check_adapter_keys(const file::GgufMetadata& metadata, const std::string& file);

}  // namespace lumen::model::arch
