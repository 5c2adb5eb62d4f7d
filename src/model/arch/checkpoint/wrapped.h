// Models that are a part of others: the text part of one that reads pictures as well. Its keys are an object of
// config.json, its tensors have a prefix, and what belongs to the other parts is set aside with a word. Which
// architecture, object and prefixes: attributes hf_inside, hf_prefix and hf_beside of the family. Proved by
// tests/model/arch/wrapped_test.cpp.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/arch/family/family.h"
#include "model/arch/family/pattern.h"
#include "model/file/tensors.h"

namespace lumen::model {

// config.json of the part as if it stood alone. Error when the object is missing.
nlohmann::json config_inside(const Family& family, const nlohmann::json& config, const std::string& file);
// The part's tensors by the names they have alone. Warns of the parts that are left aside.
std::shared_ptr<const TensorFile> tensors_inside(const Family& family, std::shared_ptr<const TensorFile> file,
                                                 const std::string& folder);

}  // namespace lumen::model
