#include "model/arch/checkpoint/write_folder.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/leave.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/folder_tensors.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/written.h"
#include "model/arch/family/config_file.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/modules/modules.h"
#include "model/arch/split_weights.h"
#include "model/file/safetensors.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"
#include "run/device/require.h"

namespace lumen::model::arch {
namespace {

// EOS ids: those of its file, in their order, then those of the tokenizer.
std::vector<text::TokenId> ends_of(const Model& model) {
  std::vector<text::TokenId> ends = text::ends_of_gguf(model.metadata, INT32_MAX);
  if (model.tokenizer) {
    std::vector<text::TokenId> known = model.tokenizer->end_of_generation();
    if (const auto eos = model.tokenizer->eos()) known.insert(known.begin(), *eos);
    for (const text::TokenId id : known)
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  std::erase_if(ends, [&](text::TokenId id) { return id >= vocabulary_of(model); });
  return ends;
}

// The dtype in config.json: that of most weights; for packed models that of the weights that stay floats.
std::string dtype_of_model(const Model& model, bool packed) {
  const FormatRef main = main_format(model, packed);
  return main && is_plain(*main, Scalar::bf16)  ? "bfloat16"
         : main && is_plain(*main, Scalar::f16) ? "float16"
                                                : "float32";
}

// Detects errors of the family's source or of the file before anything is written.
void check_room_and_pairs(const Model& model, const std::filesystem::path& folder) {
  const std::string from = model.metadata.entries().empty() ? model.name : model.metadata.source;
  for (const Parameter& p : model.parameters) {
    check_pairs(*model.family, model.config, p, from);
    if (p.hf_plus != 0 && !model.weights.at(p.name).is_f32())
      throw user_error("{}: parameter '{}' must be held in floats for a Hugging Face folder", from, p.name);
  }
  int64_t largest = 0;
  std::map<std::string, int64_t> whole;  // tensors that are joined, which needs twice their size
  for (const Parameter& p : model.parameters) {
    const bool stays = p.hf_rows.empty() && !is_reordered(p) && p.hf_plus == 0 && !p.hf_transposed &&
                       p.hf.find("{e}") == std::string::npos;
    const int64_t bytes = graph::byte_size(model.weights.at(p.name).type);
    if (!p.hf_rows.empty())
      largest = std::max(largest, whole[p.hf_rows] = run::saturating_sum(whole[p.hf_rows], 2 * bytes));
    else if (!stays)
      largest = std::max(largest, bytes);
  }
  run::require_host_memory(fmt::format("writing {}", folder.string()),
                           {{"a weight in the order of Hugging Face folders", largest}},
                           "a GGUF file is written without such copies");
}

// The model's own config.json, or a new one to complete.
nlohmann::json config_to_complete(const Model& model) {
  nlohmann::json config;
  if (const auto own = model.files.find("config.json"); own != model.files.end())
    config = parse_json(own->second, "config.json");
  if (!config.is_object()) {
    config = nlohmann::json::object();
    if (model.family->hf_architectures().empty())
      throw user_error("config.json of '{}' is not a JSON object, and its family has no attribute 'hf'", model.name);
    config["architectures"] = {model.family->hf_architectures().front()};
    config["model_type"] = model.family->hf_types().front();
    // Readers have default ids for missing members, which may be outside of this vocabulary.
    const std::vector<text::TokenId> ends = ends_of(model);
    config["eos_token_id"] = ends.size() > 1 ? nlohmann::json(ends) : nullptr;
    if (ends.size() == 1) config["eos_token_id"] = ends.front();
    const auto bos = model.tokenizer ? model.tokenizer->bos() : std::nullopt;
    config["bos_token_id"] = bos ? nlohmann::json(*bos) : nullptr;
    const char* padding = "tokenizer.ggml.padding_token_id";
    config["pad_token_id"] = nullptr;
    if (model.metadata.has(padding)) config["pad_token_id"] = model.metadata.integer(padding);
  }
  return config;
}

// Weights of an earlier model in the folder would be read as part of this one.
void remove_old_weights(const std::filesystem::path& folder, const std::set<std::string>& written) {
  std::error_code failure;
  for (const std::filesystem::path& path : list_folder(folder, failure)) {
    const std::string name = path.filename().string();
    const bool is_weights =
        name == "model.safetensors" || name == "model.safetensors.index.json" ||
        (name.starts_with("model-") && name.find("-of-") != std::string::npos && name.ends_with(".safetensors"));
    std::error_code kept;
    if (is_weights && !written.contains(name)) std::filesystem::remove(path, kept);
  }
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> out;
  for (const std::filesystem::path& path : list_folder(folder)) out.insert(path.filename().string());
  return out;
}

// Writes the tensors whose names begin with `prefix`, without it; for an empty prefix all but those of dense layers.
void write_tensors(const std::filesystem::path& folder, const FolderTensors& tensors, const std::string& prefix,
                   int64_t part_bytes) {
  std::vector<size_t> chosen;
  std::vector<file::TensorSpec> specs;
  for (size_t i = 0; i < tensors.specs.size(); ++i) {
    const std::string& name = tensors.specs[i].name;
    if (prefix.empty() ? name.starts_with(fmt::format("{}.", kDense)) : !name.starts_with(prefix)) continue;
    chosen.push_back(i);
    specs.push_back(tensors.specs[i]);
    specs.back().name = name.substr(prefix.size());
  }
  Bytes current;
  write_safetensors_files(
      folder, specs,
      [&](size_t i) -> std::span<const uint8_t> {
        leave_to_file({current.data(), current.size()});
        current = {};
        current = tensors.make[chosen[i]]();
        return {current.data(), current.size()};
      },
      part_bytes);
}

}  // namespace

void require_folder(const Model& model, bool packed) {
  if (model.family->hf_architectures().empty() && !model.files.contains("config.json"))
    throw Error(Exit::user,
                fmt::format("the family '{}' has no attribute 'hf', so its models have no Hugging Face folder",
                            model.family->name()),
                "write a GGUF file, or give the family the attributes hf and hf_type");
  if (model.metadata.has(kOnlineRotations))
    throw Error(
        Exit::user,
        fmt::format("'{}' rotates inputs of some weights at run time, which a folder cannot represent", model.name),
        "write a GGUF file");
  const bool fits_cache = held_cache(model, kCacheKeys) || held_cache(model, kCacheValues);
  if (packed ? fits_cache : has_held_formats(model))
    throw Error(Exit::user,
                fmt::format("'{}' has formats for {}, which {} cannot represent", model.name,
                            packed ? "caches without calibrated scales" : "activations or caches",
                            packed ? "a folder of packed weights" : "a folder of floats"),
                packed ? "write a GGUF file"
                       : "write a GGUF file, or a folder of packed weights; `lumen quantize IN OUT --activations none` "
                         "removes these formats");
}

void write_folder(const Model& model, const std::filesystem::path& folder, const std::string& output,
                  int64_t part_bytes, const WeightSource& source) {
  require_folder(model, !output.empty());
  check_room_and_pairs(model, folder);
  nlohmann::json config = config_to_complete(model);
  config.erase("quantization_config");
  config.erase("compression_config");
  config.erase(config.contains("dtype") ? "torch_dtype" : "dtype");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_of_model(model, !output.empty());
  config.erase(kLowRankMember);
  if (model.metadata.has(kLowRankWeights)) {
    config[kLowRankMember] = model.metadata.texts(kLowRankWeights);
    config["model_type"] = kLowRankModelType;
    warn(fmt::format("'{}': weights have low-rank branches ({}): other programs will refuse the folder", model.name,
                     kLowRankMember));
  }
  for (const SplitKey& key : kSplitKeys) {
    config.erase(key.member);
    if (!model.metadata.has(key.key)) continue;
    config[key.member] = model.metadata.texts(key.key);
    config["model_type"] = kSplitModelType;
    warn(fmt::format("'{}': weights are stored in parts ({}): other programs will refuse the folder", model.name,
                     key.member));
  }
  const std::vector<std::string> own = write_hf_config(*model.family, model.config, config);
  if (!own.empty())
    warn(fmt::format("config.json has no standard keys for {} of this model: other programs will compute wrong results",
                     fmt::join(own, ", ")));
  const graph::Config back = model.family->config("", read_hf_config(*model.family, config, "config.json"));
  const FolderTensors tensors = folder_tensors(model, source, back, output);
  SmallFiles carried = carry_to_hf(model.files, model.metadata, ends_of(model));
  const nlohmann::json dense = config.value(kDense, nlohmann::json::object());
  config.erase(kDense);
  const std::vector<std::string> layers = dense.empty() ? std::vector<std::string>() : put_dense(dense, carried);
  if (tensors.packing) config["quantization_config"] = tensors.packing->config();
  if (!tensors.decoded.empty())
    note(fmt::format("written in f32, as readers of such folders require: {}", fmt::join(tensors.decoded, ", ")));
  AtomicFolder out(folder);
  // Nested folders are written directly, since they are not moved into an existing folder.
  const std::filesystem::path nested = out.path().parent_path() == folder ? folder : out.path();
  write_tensors(out.path(), tensors, "", part_bytes);
  for (size_t i = 0; i < layers.size(); ++i) {
    std::filesystem::create_directories(nested / layers[i]);
    write_tensors(nested / layers[i], tensors, fmt::format("{}.{}.", kDense, i), 0);
  }
  if (model.tokenizer) carried.try_emplace("tokenizer_config.json", model.tokenizer->to_config_json());
  for (const auto& [name, text] : carried) {
    const bool is_nested = name.find('/') != std::string::npos;
    const std::filesystem::path file = (is_nested ? nested : out.path()) / name;
    if (is_nested) std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, text);
  }
  if (model.tokenizer) write_file_atomic(out.path() / "tokenizer.json", model.tokenizer->to_json());
  // Last, so that a folder with config.json is complete.
  write_file_atomic(out.path() / "config.json", config.dump(2) + "\n");
  const std::set<std::string> written = names_in(out.path());
  out.commit();
  remove_old_weights(folder, written);
}

}  // namespace lumen::model::arch
