#include "model/arch/write.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "model/arch/carry.h"
#include "model/arch/config_file.h"
#include "model/arch/pairs.h"
#include "model/arch/rows.h"
#include "model/file/gguf_split.h"
#include "model/file/json.h"
#include "model/file/safetensors.h"
#include "number/codec.h"

namespace lumen::model {
namespace {

TensorSpec spec_of(const std::string& name, const Weight& w) {
  TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : w.type.shape) spec.shape.push_back(d.number());
  spec.element = w.type.element;
  return spec;
}

// Whether numbers share fields, so that only whole rows can be moved.
bool is_rounded(const Weight& w) {
  return !w.is_f32() && !is_plain(*w.type.element.format, Scalar::f16) &&
         !is_plain(*w.type.element.format, Scalar::bf16);
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

// What config.json calls the type most weights are in.
std::string dtype_of_model(const Model& model) {
  const FormatRef main = main_format(model);
  return main && is_plain(*main, Scalar::bf16)  ? "bfloat16"
         : main && is_plain(*main, Scalar::f16) ? "float16"
                                                : "float32";
}

std::string size_label(int64_t weights) {
  if (weights >= 1'000'000'000) return fmt::format("{:.3g}B", static_cast<double>(weights) / 1e9);
  if (weights >= 1'000'000) return fmt::format("{:.3g}M", static_cast<double>(weights) / 1e6);
  return fmt::format("{:.3g}K", static_cast<double>(weights) / 1e3);
}

// Parameters that lie in groups of rows of one tensor, put together; formats whose matrices cannot be turned become
// f32.
Weight interleaved(const Model& model, const std::vector<const Parameter*>& parts) {
  const int64_t groups = parts.front()->shape[0].number(), of = parts.front()->hf_of;
  std::vector<Weight> rows;  // of each part, group by group
  int64_t counted = 0;
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const Parameter* p) {
    const Weight& w = model.weights.at(p->name);
    return w.type.element == model.weights.at(parts.front()->name).type.element && !(p->hf_transposed && is_rounded(w));
  });
  for (const Parameter* p : parts) {
    Weight w = model.weights.at(p->name);
    if (!alike && w.type.element.format)
      w = f32_weight(w.type.shape, decode(*w.type.element.format, w.bytes, w.rows(), w.columns()));
    std::vector<Weight> turned;
    const int64_t each = w.rows() / groups;
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<int64_t> source;
      for (int64_t r = 0; r < each; ++r) source.push_back(g * each + r);
      Weight one = take_rows(w, {p->shape[1], p->shape[2]}, source);
      turned.push_back(p->hf_transposed ? transposed(one) : std::move(one));
    }
    rows.push_back(stack_rows(turned, {graph::Dim(groups * p->hf_count), graph::Dim(turned[0].columns())}));
    counted += p->hf_count;
  }
  LUMEN_CHECK(counted == of, "{} of {} rows", counted, of);
  const int64_t columns = rows.front().columns();
  const Weight all = stack_rows(rows, {graph::Dim(groups * of), graph::Dim(columns)});
  std::vector<int64_t> source(static_cast<size_t>(groups * of));
  int64_t first = 0;
  for (const Parameter* p : parts) {
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t r = 0; r < p->hf_count; ++r)
        source[static_cast<size_t>(g * of + p->hf_from + r)] = first + g * p->hf_count + r;
    first += groups * p->hf_count;
  }
  return take_rows(all, all.type.shape, source);
}

}  // namespace

bool is_omitted(const Model& model, const Parameter& p, const graph::Config& back) {
  if (!p.optional || p.init == "normal" || p.init == "residual") return false;
  const Weight& w = model.weights.at(p.name);
  if (!w.is_f32()) return false;
  for (const Parameter& again : model.family->parameters(back)) {
    if (again.name == p.name)
      return again.shape == p.shape && w.bytes == initial_weight(*model.family, back, again, 0, 0).bytes;
  }
  return false;
}

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type, int64_t split_bytes) {
  GgufMetadata metadata = model.metadata;
  carry_to_gguf(model.files, metadata);
  const FormatRef main = main_format(model);
  if (file_type < 0) file_type = main && main->gguf_file_type ? *main->gguf_file_type : 0;
  metadata.set("general.architecture", model.family->gguf_architecture());
  metadata.set("general.type", std::string("model"));
  metadata.set("general.name", model.name);
  metadata.set("general.size_label", size_label(model.weight_count()));
  metadata.set("general.file_type", static_cast<uint32_t>(file_type));
  if (main) metadata.set("general.quantization_version", uint32_t{2});
  const graph::Config back = write_gguf_config(*model.family, model.config, metadata);
  if (model.tokenizer && !metadata.has("tokenizer.ggml.model")) model.tokenizer->to_gguf(metadata);
  if (!model.tokenizer && !metadata.has("tokenizer.ggml.model")) metadata.set("tokenizer.ggml.model", kNoTokenizer);

  std::vector<TensorSpec> specs;
  std::vector<const Weight*> weights;
  for (const Parameter& p : model.parameters) {
    if (is_omitted(model, p, back)) continue;
    specs.push_back(spec_of(p.gguf, model.weights.at(p.name)));
    weights.push_back(&model.weights.at(p.name));
  }
  write_gguf_files(
      path, std::move(metadata), specs,
      [&](size_t i) -> std::span<const uint8_t> { return {weights[i]->bytes.data(), weights[i]->bytes.size()}; },
      split_bytes);
}

void write_hf(const Model& model, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  nlohmann::json config;
  if (const auto own = model.files.find("config.json"); own != model.files.end())
    config = parse_json(own->second, "config.json");
  if (!config.is_object()) {
    config = nlohmann::json::object();
    LUMEN_CHECK(!model.family->hf_architectures().empty());
    config["architectures"] = {model.family->hf_architectures().front()};
    config["model_type"] = model.family->hf_type();
  }
  config.erase("quantization_config");
  config.erase(config.contains("dtype") ? "torch_dtype" : "dtype");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_of_model(model);
  write_hf_config(*model.family, model.config, config);
  const graph::Config back = model.family->config("", read_hf_config(*model.family, config, "config.json"));
  std::vector<TensorSpec> specs;
  std::vector<Weight> weights;
  std::map<std::string, std::vector<const Parameter*>> between;  // several in one tensor, by its name
  for (const Parameter& p : model.parameters) {
    if (is_omitted(model, p, back)) continue;
    if (!p.hf_rows.empty()) {
      between[p.hf_rows].push_back(&p);
      continue;
    }
    if (p.hf.empty()) throw user_error("parameter '{}' has values no Hugging Face folder can hold", p.name);
    Weight w = model.weights.at(p.name);
    if (p.hf_halves > 0) pairs_to_halves(w, p.hf_halves, p.hf_turned);
    if (p.hf_plus != 0) {
      std::vector<float> values(w.f32().begin(), w.f32().end());
      for (float& v : values) v = static_cast<float>(v - p.hf_plus);
      w = f32_weight(w.type.shape, values);
    }
    if (p.hf_transposed) w = transposed(w);
    const size_t expert = p.hf.find("{e}");
    if (expert == std::string::npos) {
      specs.push_back(spec_of(p.hf, w));
      weights.push_back(std::move(w));
      continue;
    }
    const int64_t rows = w.rows() / p.shape[0].number();
    for (int64_t e = 0; e < p.shape[0].number(); ++e) {
      std::vector<int64_t> source(static_cast<size_t>(rows));
      for (int64_t r = 0; r < rows; ++r) source[static_cast<size_t>(r)] = e * rows + r;
      Weight one = take_rows(w, {p.shape.begin() + 1, p.shape.end()}, source);
      std::string name = p.hf;
      specs.push_back(spec_of(name.replace(expert, 3, std::to_string(e)), one));
      weights.push_back(std::move(one));
    }
  }
  for (const auto& [name, parts] : between) {
    weights.push_back(interleaved(model, parts));
    specs.push_back(spec_of(name, weights.back()));
  }
  SafetensorsWriter writer(folder / "model.safetensors", {{"format", "pt"}}, specs);
  for (const Weight& w : weights) writer.write(w.bytes);
  writer.commit();
  SmallFiles carried = carry_to_hf(model.files, model.metadata);
  if (model.tokenizer) carried.try_emplace("tokenizer_config.json", model.tokenizer->to_config_json());
  for (const auto& [name, text] : carried) write_file_atomic(folder / name, text);
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  if (model.tokenizer) write_file_atomic(folder / "tokenizer.json", model.tokenizer->to_json());
}

}  // namespace lumen::model
