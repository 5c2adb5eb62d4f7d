#include "model/arch/adapter/adapter.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "model/arch/adapter/adapter_tensors.h"
#include "model/arch/adapter/adapter_whole.h"
#include "model/arch/split_weights.h"

namespace lumen::model::arch {
namespace {

// Checks an adapter against a model whose config other adapters have changed as well.
void check_sizes(const Model& model, const Adapter& adapter) {
  const auto refuse = [&](const Parameter& p) {
    throw Error(Exit::user,
                fmt::format("{}: made for another vocabulary than another adapter: parameter {} has {} rows",
                            adapter.name, p.name, p.shape[0].number()),
                "use the two separately");
  };
  for (const Parameter& p : all_own_parameters(model)) {
    const auto whole = adapter.whole.find(p.name);
    if (whole != adapter.whole.end() && whole->second.type.shape != p.shape) refuse(p);
    const auto part = adapter.parts.find(p.name);
    if (part == adapter.parts.end() || p.shape.size() != 2) continue;
    const int64_t rows = is_looked_up(p) ? part->second.a.rows() : part->second.b.rows();
    if (rows != p.shape[0].number()) refuse(p);
  }
}

}  // namespace

Model with_whole_weights(const Model& model, std::span<const Adapter* const> adapters) {
  graph::Config config;
  std::map<std::string, const Adapter*> by_key;
  for (const Adapter* adapter : adapters) {
    for (const auto& [key, value] : adapter->config) {
      const auto [before, fresh] = by_key.emplace(key, adapter);
      if (!fresh && config.at(key) != value)
        throw user_error("{} and {} were made for different models: \"{}\" is {} and {}", before->second->name,
                         adapter->name, key, config.at(key), value);
      config[key] = value;
    }
  }
  Model out = with_config(model, config);
  std::map<std::string, const Adapter*> whose;
  for (const Adapter* adapter : adapters) {
    check_sizes(out, *adapter);
    for (const auto& [name, weight] : adapter->whole) {
      const auto [before, fresh] = whose.emplace(name, adapter);
      const Weight& known = fresh ? weight : before->second->whole.at(name);
      if (!(known.type == weight.type && known.bytes == weight.bytes))
        throw user_error("{} and {} have different weights for parameter {}", before->second->name, adapter->name,
                         name);
      out.weights.insert_or_assign(name, weight);
    }
  }
  for (const Parameter& p : all_own_parameters(out))
    if (!p.absent_if.empty() && out.weights.contains(p.name)) out.config[p.absent_if] = 0;
  out.parameters = own_parameters(out);
  for (const Parameter& p : out.parameters)
    LUMEN_CHECK(out.weights.contains(p.name) && out.weights.at(p.name).type.shape == p.shape, "{} has no weight",
                p.name);
  return out;
}

void require_scale(const ScaledAdapter& s) {
  if (s.scale == 1) return;
  const bool magnitudes = std::any_of(s.adapter.parts.begin(), s.adapter.parts.end(),
                                      [](const auto& part) { return part.second.magnitude.has_value(); });
  if (s.adapter.whole.empty() && !magnitudes) return;
  throw Error(Exit::user,
              fmt::format("{}: {} cannot be scaled, but the scale is {}", s.adapter.name,
                          magnitudes ? "magnitudes" : "full weights", s.scale),
              "use it with the scale 1");
}

bool is_looked_up(const Parameter& p) {
  return p.role == "embedding" || p.role == "position";
}

Adapter read_adapter(const Model& model, const std::filesystem::path& path) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) throw user_error("{}: no such file", path.string());
  const bool is_folder = std::filesystem::is_directory(path, failure);
  const std::filesystem::path folder = is_folder ? path : path.parent_path();
  if (!is_folder && path.filename() != kAdapterWeights && path.filename() != kAdapterConfig)
    return read_gguf_adapter(model, path);
  if (!std::filesystem::exists(folder / kAdapterConfig, failure))
    throw Error(Exit::user, fmt::format("{}: no {} in this folder", folder.string(), kAdapterConfig),
                "an adapter is a GGUF file, or a folder with adapter_config.json and adapter_model.safetensors");
  if (!std::filesystem::exists(folder / kAdapterWeights, failure))
    throw Error(Exit::user, fmt::format("{}: no {} in this folder", folder.string(), kAdapterWeights),
                "pickles (adapter_model.bin) are not read; save the adapter as safetensors");
  return read_folder_adapter(model, folder);
}

}  // namespace lumen::model::arch
