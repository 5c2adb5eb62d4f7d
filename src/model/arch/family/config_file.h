// The config of a family in files: metadata of GGUF, config.json of Hugging Face folders. What a family's keys have no
// name for there is written under names of our own, so that reading back gives the same config. Proved by
// tests/model/arch/arch_test.cpp and tests/model/families/families_test.cpp.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "model/arch/family/family.h"
#include "model/file/gguf.h"

namespace lumen::model {

// Whether the file has a tensor of this name; empty where only the metadata is asked.
using HasTensor = std::function<bool(const std::string&)>;

// Error names the file and the key when a value is out of range or a text is none of the key's choices.
graph::Config read_gguf_config(const Family& family, const GgufMetadata& metadata, const HasTensor& has_tensor = {});
graph::Config read_hf_config(const Family& family, const nlohmann::json& config, const std::string& file);

// Returns the config as programs see it that do not know our own names.
graph::Config write_gguf_config(const Family& family, const graph::Config& config, GgufMetadata& metadata);
// That config, without writing anything.
graph::Config config_in_gguf(const Family& family, const graph::Config& config, GgufMetadata metadata);
// Changes members of `json`, which may hold others. Returns the keys that only we can read there.
std::vector<std::string> write_hf_config(const Family& family, const graph::Config& config, nlohmann::json& json);

// The name under which a GGUF file has a key that the format has no name for.
std::string own_gguf_key(const ConfigKey& key);

// The family that reads a GGUF file: the one it names (`lumen.family`), else by architecture and condition.
FamilyRef family_of_file(const Library& library, const GgufMetadata& metadata);
// Names the family in a file whose other keys would lead to another one.
void name_family(const Family& family, GgufMetadata& metadata);

}  // namespace lumen::model
