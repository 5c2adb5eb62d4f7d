// Models whose tensors have other names than the family's: the text part of a model that also reads images, and models
// saved without their head. A text part's config is a member of config.json (the family's attribute hf_inside), its
// tensors have a prefix (hf_prefix), and tensors of other parts (hf_beside) are skipped with a warning. Proved by
// tests/model/arch/wrapped_test.cpp.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/arch/family/family.h"
#include "model/arch/family/pattern.h"
#include "model/file/tensors.h"

namespace lumen::model::arch {

// The member of `config` that describes the text part; null in older files, where `config` does so itself.
const nlohmann::json* text_part(const nlohmann::json& config, const std::string& member);
// The part's config.json as a standalone model's. It is a member of `config`, of the file `file`; in older files, whose
// "model_type" is one of the family's, it is `config` itself. Error for others.
nlohmann::json config_inside(const Family& family, const nlohmann::json& config, const std::string& member,
                             const std::string& file);
// The part's tensors with the names of a standalone model. Warns about the skipped parts, of `architecture`.
std::shared_ptr<const file::TensorFile> tensors_inside(const Family& family,
                                                       std::shared_ptr<const file::TensorFile> file,
                                                       const std::string& architecture, const std::string& folder);

// The tensors of a tower (hf_prefix: those that begin with one of its prefixes), with its own names.
std::shared_ptr<const file::TensorFile> tensors_of_tower(const Family& family,
                                                         std::shared_ptr<const file::TensorFile> file,
                                                         const std::string& folder);

// Tensors of a model that was saved without its head: "layers.0.." for "model.layers.0..". Other files are returned as
// they are.
std::shared_ptr<const file::TensorFile> with_full_names(const Family& family, const graph::Config& config,
                                                        std::shared_ptr<const file::TensorFile> file,
                                                        const std::string& folder);

}  // namespace lumen::model::arch
