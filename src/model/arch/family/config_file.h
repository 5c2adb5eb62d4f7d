// The config of a family in files: GGUF metadata, and config.json of Hugging Face folders. Values without a standard
// key are written under our own keys, so that reading returns the same config. Proved by tests/model/arch/arch_test.cpp
// and tests/model/families/families_test.cpp.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "model/arch/family/family.h"
#include "model/file/gguf.h"

namespace lumen::model::arch {

// Whether the file has a tensor of this name; empty if only metadata is available.
using HasTensor = std::function<bool(const std::string&)>;

// Error that names the file and the key when a value is out of range, or a string is none of the key's choices.
graph::Config read_gguf_config(const Family& family, const file::GgufMetadata& metadata,
                               const HasTensor& has_tensor = {});
graph::Config read_hf_config(const Family& family, const nlohmann::json& config, const std::string& file);

// Returns the config as read by programs that do not know our own keys.
graph::Config write_gguf_config(const Family& family, const graph::Config& config, file::GgufMetadata& metadata);
// That config, without writing anything.
graph::Config config_in_gguf(const Family& family, const graph::Config& config, file::GgufMetadata metadata);
// Changes members of `json`, which may have others. Returns the keys that only we can read there.
std::vector<std::string> write_hf_config(const Family& family, const graph::Config& config, nlohmann::json& json);

// The metadata key for a config key without a standard GGUF name.
std::string own_gguf_key(const ConfigKey& key);

// The first of "architectures" in config.json, or "".
std::string architecture_of(const nlohmann::json& config);
// The family that reads a Hugging Face folder whose config.json this is; of a bad file "" is the architecture.
FamilyRef family_of_config(const Library& library, const nlohmann::json& config);
// The family that reads a GGUF file: the named one (`lumen.family`), else by architecture and condition.
FamilyRef family_of_file(const Library& library, const file::GgufMetadata& metadata);
// Adds `lumen.family` to a file whose other keys would select another family.
void name_family(const Family& family, file::GgufMetadata& metadata);

}  // namespace lumen::model::arch
