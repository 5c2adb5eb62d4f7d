// A model under the numbers that an adapter's whole weights ask for: another vocabulary, or biases that the model's
// config leaves out. Proved by tests/model/arch/adapter/adapter_whole_test.cpp.
#pragma once

#include <optional>
#include <string>

#include "model/arch/adapter/adapter.h"

namespace lumen::model {

inline constexpr const char* kVocabulary = "vocab";  // the config key of every family

// The config under which the model has the tensor that folders call so, as well as all it has: a key that was false is
// true, and with it those that follow it. Nothing where the family has no such tensor.
std::optional<graph::Config> config_with(const Model& model, const std::string& tensor);

// The model with these values of config keys. Biases that it gains are zeros; other weights may be missing, or have
// another shape than their parameter.
Model with_config(const Model& model, const graph::Config& values);

}  // namespace lumen::model
