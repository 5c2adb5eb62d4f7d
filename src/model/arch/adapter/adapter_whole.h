// A model with the config that an adapter's full weights need: another vocabulary size, or biases that the model's
// config leaves out. Proved by tests/model/arch/adapter/adapter_whole_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model::arch {

inline constexpr const char* kVocabulary = "vocab";  // the config key of every family

// The config with which the model has the named tensor of HF folders, and still all its own: a boolean key becomes
// true, and with it those that default to it. nullopt where the family has no such tensor, or the model has it already.
std::optional<graph::Config> config_with(const Model& model, const std::string& tensor);

// The model with these config values. New biases are zeros; other weights may be missing, or differ in shape from their
// parameter.
Model with_config(const Model& model, const graph::Config& values);

}  // namespace lumen::model::arch
