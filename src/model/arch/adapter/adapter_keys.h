// The table of models/adapters.toml: which keys of an adapter's file are read, which change nothing and why, and which
// are refused. Proved by tests/model/arch/adapter/adapter_keys_test.cpp.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/file/gguf.h"

namespace lumen::model {

struct AdapterKeys {
  struct Rule {
    std::vector<std::string> keys;  // * matches any end
    std::string because, instead;   // the reason, and of refused ones what to do
  };
  enum class Verdict { unknown, read, unread, refused };
  struct Use {
    Verdict verdict = Verdict::unknown;
    const Rule* rule = nullptr;  // of unread and refused keys
  };
  struct Values {  // the only ones that are read
    std::string key;
    std::vector<std::string> known;
    std::string because, instead;
  };
  struct Kind {
    std::string name;  // "peft_type"; of GGUF files ""
    std::vector<std::string> read;
    std::vector<Rule> unread, refused;
    std::vector<Values> values;
    Use use_of(const std::string& key) const;  // by the longest entry that matches
  };

  std::vector<Kind> kinds;        // that are read
  std::vector<Rule> other;        // kinds that are refused, as keys
  std::vector<std::string> tied;  // names of modules that may share a weight, the embedding first
  Kind gguf;
};
const AdapterKeys& adapter_keys();

// The kind that adapter_config.json is of, where all that it says is read or unread. Error naming `file`, the key and
// what to do otherwise.
const AdapterKeys::Kind& check_adapter_keys(const nlohmann::ordered_json& config, const std::string& file);
// The same of a GGUF file's metadata.
void check_adapter_keys(const GgufMetadata& metadata, const std::string& file);

}  // namespace lumen::model
