// Models inside multimodal ones: the text part of a model that also reads images. Its config is an object of
// config.json, its tensors have a prefix, and tensors of other parts are skipped with a warning. The family's
// attributes hf_inside, hf_prefix and hf_beside give architecture, object and prefixes. Proved by
// tests/model/arch/wrapped_test.cpp.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/arch/family/family.h"
#include "model/arch/family/pattern.h"
#include "model/file/tensors.h"

namespace lumen::model {

// The part's config.json as a standalone model. Error when the object is missing.
nlohmann::json config_inside(const Family& family, const nlohmann::json& config, const std::string& file);
// The part's tensors with the names of a standalone model. Warns about the skipped parts.
std::shared_ptr<const TensorFile> tensors_inside(const Family& family, std::shared_ptr<const TensorFile> file,
                                                 const std::string& folder);

}  // namespace lumen::model
