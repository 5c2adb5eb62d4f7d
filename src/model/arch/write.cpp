#include "model/arch/write.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "model/arch/pairs.h"
#include "model/file/safetensors.h"

namespace lumen::model {
namespace {

TensorSpec spec_of(const std::string& name, const Weight& w) {
  TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : w.type.shape) spec.shape.push_back(d.number());
  spec.element = w.type.element;
  return spec;
}

// The format that holds most weights; null when that is f32.
FormatRef main_format(const Model& model) {
  std::map<std::string, std::pair<int64_t, FormatRef>> counts;
  for (const Parameter& p : model.parameters) {
    const FormatRef& f = model.weights.at(p.name).type.element.format;
    auto& entry = counts[f ? f->name : ""];
    entry.first += p.count();
    entry.second = f;
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  return most == counts.end() ? nullptr : most->second.second;
}

std::string size_label(int64_t weights) {
  if (weights >= 1'000'000'000) return fmt::format("{:.3g}B", static_cast<double>(weights) / 1e9);
  if (weights >= 1'000'000) return fmt::format("{:.3g}M", static_cast<double>(weights) / 1e6);
  return fmt::format("{:.3g}K", static_cast<double>(weights) / 1e3);
}

}  // namespace

bool is_omitted(const Model& model, const Parameter& p) {
  if (!p.optional || p.init == "normal" || p.init == "residual") return false;
  const Weight& w = model.weights.at(p.name);
  return w.is_f32() && w.bytes == initial_weight(*model.family, model.config, p, 0, 0).bytes;
}

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type) {
  GgufMetadata metadata = model.metadata;
  const FormatRef main = main_format(model);
  if (file_type < 0) file_type = main && main->gguf_file_type ? *main->gguf_file_type : 0;
  metadata.set("general.architecture", model.family->gguf_architecture());
  metadata.set("general.type", std::string("model"));
  metadata.set("general.name", model.name);
  metadata.set("general.size_label", size_label(model.weight_count()));
  metadata.set("general.file_type", static_cast<uint32_t>(file_type));
  if (main) metadata.set("general.quantization_version", uint32_t{2});
  for (const ConfigKey& key : model.family->keys()) {
    const auto value = model.config.find(key.name);
    if (value == model.config.end()) continue;
    for (const std::string& name : key.gguf) {
      if (key.is_float) {
        metadata.set(name, static_cast<float>(value->second));
      } else if (!metadata.has(name)) {  // a file's own spelling (per layer, for instance) stays
        metadata.set(name, static_cast<uint32_t>(value->second));
      }
    }
  }
  if (model.tokenizer && !metadata.has("tokenizer.ggml.model")) model.tokenizer->to_gguf(metadata);

  std::vector<TensorSpec> specs;
  std::vector<const Weight*> weights;
  for (const Parameter& p : model.parameters) {
    if (is_omitted(model, p)) continue;
    specs.push_back(spec_of(p.gguf, model.weights.at(p.name)));
    weights.push_back(&model.weights.at(p.name));
  }
  GgufWriter writer(path, std::move(metadata), specs);
  for (const Weight* w : weights) writer.write(w->bytes);
  writer.commit();
}

void write_hf(const Model& model, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<Parameter> all = model.family->all_parameters(model.config);
  nlohmann::json config;
  LUMEN_CHECK(!model.family->hf_architectures().empty());
  config["architectures"] = {model.family->hf_architectures().front()};
  config["model_type"] = model.family->gguf_architecture();
  config["torch_dtype"] = "float32";
  for (const ConfigKey& key : model.family->keys()) {
    const auto value = model.config.find(key.name);
    if (value == model.config.end() || key.hf.empty()) continue;
    const bool is_truth =
        std::any_of(all.begin(), all.end(), [&](const Parameter& p) { return p.absent_if == key.name; });
    if (is_truth) {
      config[key.hf.front()] = value->second != 0;
    } else if (key.is_float) {
      config[key.hf.front()] = value->second;
    } else {
      config[key.hf.front()] = static_cast<int64_t>(value->second);
    }
  }
  std::vector<TensorSpec> specs;
  std::vector<Weight> weights;
  for (const Parameter& p : model.parameters) {
    if (is_omitted(model, p)) continue;
    if (p.hf.empty()) throw user_error("parameter '{}' has values no Hugging Face folder can hold", p.name);
    Weight w = model.weights.at(p.name);
    if (p.hf_halves > 0) pairs_to_halves(w, p.hf_halves);
    specs.push_back(spec_of(p.hf, w));
    weights.push_back(std::move(w));
  }
  SafetensorsWriter writer(folder / "model.safetensors", {{"format", "pt"}}, specs);
  for (const Weight& w : weights) writer.write(w.bytes);
  writer.commit();
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  if (model.tokenizer) write_file_atomic(folder / "tokenizer.json", model.tokenizer->to_json());
}

}  // namespace lumen::model
