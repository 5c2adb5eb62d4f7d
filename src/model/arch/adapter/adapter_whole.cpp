#include "model/arch/adapter/adapter_whole.h"

#include <algorithm>

#include "base/error.h"
#include "model/arch/split_weights.h"

namespace lumen::model::arch {
namespace {

bool is_called(const Parameter& p, const std::string& tensor) {
  return p.hf == tensor || p.hf_fused == tensor || std::ranges::find(p.hf_also, tensor) != p.hf_also.end();
}

// The default of a key that a file lacks, where the others are as given.
double usual(const Family& family, graph::Config values, const std::string& key) {
  values.erase(key);
  return family.config("", values).at(key);
}

// Sets a key to true, and those whose default follows it.
graph::Config switched(const Family& family, const graph::Config& config, const std::string& key) {
  graph::Config out = config;
  out[key] = 1;
  for (const ConfigKey& other : family.keys()) {
    if (!other.is_bool || other.has_axis || other.name == key || config.at(other.name) != 0) continue;
    if (usual(family, config, other.name) == 0 && usual(family, out, other.name) != 0) out[other.name] = 1;
  }
  return out;
}

}  // namespace

std::optional<graph::Config> config_with(const Model& model, const std::string& tensor) {
  const Family& family = *model.family;
  const std::vector<Parameter> own = family.parameters(model.config);
  const auto is_meant = [&](const Parameter& p) { return is_called(p, tensor); };
  if (std::ranges::any_of(own, is_meant)) return std::nullopt;
  for (const ConfigKey& key : family.keys()) {
    if (!key.is_bool || key.has_axis || model.config.at(key.name) != 0) continue;
    graph::Config config = switched(family, model.config, key.name);
    const std::vector<Parameter> parameters = family.parameters(config);
    if (std::ranges::none_of(parameters, is_meant)) continue;
    const auto stays = [&](const Parameter& old) {
      return std::ranges::any_of(parameters,
                                 [&](const Parameter& p) { return p.name == old.name && p.shape == old.shape; });
    };
    if (std::ranges::all_of(own, stays)) return config;
  }
  return std::nullopt;
}

Model with_config(const Model& model, const graph::Config& values) {
  Model out = model;
  for (const auto& [key, value] : values) out.config[key] = value;
  out.parameters = own_parameters(out);
  for (const Parameter& p : out.parameters)
    if (p.is_vector() && p.init == "zeros" && !out.weights.contains(p.name))
      out.weights[p.name] = f32_weight(p.shape, std::vector<float>(p.count(), 0.0F));
  return out;
}

}  // namespace lumen::model::arch
