#include "model/arch/checkpoint/wrapped.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "model/arch/checkpoint/tower_file/renamed_tensors.h"
#include "model/arch/family/tower.h"

namespace lumen::model::arch {
const nlohmann::json* text_part(const nlohmann::json& config, const std::string& member) {
  const auto part = config.find(member);
  return part != config.end() && part->is_object() ? &*part : nullptr;
}

nlohmann::json config_inside(const Family& family, const nlohmann::json& config, const std::string& member,
                             const std::string& file) {
  const nlohmann::json* part = text_part(config, member);
  const auto type = config.find("model_type");
  const auto is_own = [&](const std::string& name) { return type != config.end() && *type == name; };
  if (!part && std::none_of(family.hf_types().begin(), family.hf_types().end(), is_own))
    throw user_error("{}: \"{}\" is not an object, but this architecture has its text part there", file, member);
  nlohmann::json out = part ? *part : config;
  for (const char* shared :
       {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings"})
    if (const auto value = config.find(shared); value != config.end() && !out.contains(shared)) out[shared] = *value;
  out["architectures"] = {family.hf_architectures().front()};
  out["model_type"] = family.hf_types().front();
  return out;
}

std::shared_ptr<const file::TensorFile> tensors_inside(const Family& family,
                                                       std::shared_ptr<const file::TensorFile> file,
                                                       const std::string& architecture, const std::string& folder) {
  std::vector<file::StoredTensor> tensors;
  int64_t aside = 0;
  for (const file::StoredTensor& t : file->tensors()) {
    const auto& beside = family.beside();
    if (std::any_of(beside.begin(), beside.end(), [&](const auto& b) { return fits_pattern(b, t.name); })) {
      ++aside;
      continue;
    }
    file::StoredTensor named = t;
    for (const auto& [theirs, ours] : family.prefixes()) {
      if (!t.name.starts_with(theirs)) continue;
      named.name = ours + t.name.substr(theirs.size());
      break;
    }
    tensors.push_back(std::move(named));
  }
  if (aside > 0 && !tower_of(family.library(), architecture))
    warn(fmt::format("{}: only the text part of {} is read; {} tensors of its other parts are skipped", folder,
                     architecture, aside));
  return std::make_shared<const RenamedTensors>(std::move(file), std::move(tensors), folder);
}

std::shared_ptr<const file::TensorFile> tensors_of_tower(const Family& family,
                                                         std::shared_ptr<const file::TensorFile> file,
                                                         const std::string& folder) {
  std::vector<file::StoredTensor> tensors;
  for (const file::StoredTensor& t : file->tensors()) {
    for (const auto& [theirs, ours] : family.prefixes()) {
      if (!t.name.starts_with(theirs)) continue;
      tensors.push_back(t);
      tensors.back().name = ours + t.name.substr(theirs.size());
      break;
    }
  }
  return std::make_shared<const RenamedTensors>(std::move(file), std::move(tensors), folder);
}

std::shared_ptr<const file::TensorFile> with_full_names(const Family& family, const graph::Config& config,
                                                        std::shared_ptr<const file::TensorFile> file,
                                                        const std::string& folder) {
  std::set<std::string> full;  // names of parameters that are in no layer
  std::string prefix;          // what their names begin with where models have heads
  for (const Parameter& p : family.all_parameters(config)) {
    if (p.hf.empty()) continue;
    full.insert(p.hf);
    if (p.role == "embedding" && prefix.empty()) prefix = p.hf.substr(0, p.hf.find('.') + 1);
  }
  const auto is_bare = [&](const file::StoredTensor& t) {
    return !full.contains(t.name) && full.contains(prefix + t.name);
  };
  const auto& all = file->tensors();
  if (prefix.empty() || std::none_of(all.begin(), all.end(), is_bare) ||
      std::any_of(all.begin(), all.end(), [&](const auto& t) { return t.name.starts_with(prefix); }))
    return file;
  std::vector<file::StoredTensor> tensors;
  for (const file::StoredTensor& t : all) {
    tensors.push_back(t);
    if (!full.contains(t.name)) tensors.back().name = prefix + t.name;
  }
  return std::make_shared<const RenamedTensors>(std::move(file), std::move(tensors), folder);
}

}  // namespace lumen::model::arch
