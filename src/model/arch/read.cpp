#include "model/arch/read.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "model/arch/pairs.h"
#include "model/file/safetensors.h"
#include "number/codec.h"

namespace lumen::model {
namespace {

std::vector<int64_t> numbers(const graph::Shape& shape) {
  std::vector<int64_t> out;
  for (const graph::Dim& d : shape) out.push_back(d.number());
  return out;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// A tensor of a file as a weight: plain f32 stays, other plain floats become their format, formats are blobs.
Weight weight_of(const FormatLibrary& formats, const StoredTensor& tensor, const Parameter& p,
                 const std::shared_ptr<const TensorFile>& opened, const std::string& file) {
  const std::vector<int64_t> expected = numbers(p.shape);
  if (tensor.shape != expected) {
    throw Error(Exit::user,
                fmt::format("{}: tensor '{}' has shape {}, but the config asks for {}", file, tensor.name,
                            shape_text(tensor.shape), shape_text(expected)),
                "the file's metadata and tensors disagree");
  }
  Weight w;
  w.type.shape = p.shape;
  w.type.element = tensor.element;
  if (tensor.element.format && is_plain(*tensor.element.format, Scalar::f32)) w.type.element = {Scalar::f32, nullptr};
  if (!tensor.element.format && tensor.element.scalar != Scalar::f32) {
    const FormatRef format = format_of_scalar(formats, tensor.element.scalar);
    if (!format) {
      throw user_error("{}: tensor '{}' has element type {}, which weights cannot have", file, tensor.name,
                       scalar_name(tensor.element.scalar));
    }
    w.type.element = {Scalar::f32, format};
  }
  const auto size = static_cast<size_t>(graph::byte_size(w.type));
  if (tensor.is_blob() && tensor.data.size() == size) {
    w.bytes = Bytes(tensor.data, opened);  // where it lies in the file
  } else {
    std::vector<uint8_t> blob = tensor.blob();
    blob.resize(size);
    w.bytes = std::move(blob);
  }
  // Vectors (norms) are always computed in f32.
  if (w.type.element.format && p.shape.size() < 2) {
    return f32_weight(p.shape, decode(*w.type.element.format, w.bytes, w.rows(), w.columns()));
  }
  return w;
}

using NameOf = std::string (*)(const Parameter&);

// Takes all weights of `model` from a file, deciding which parameters exist. Names the file has beyond them must be in
// `ignored`.
void take_weights(Model& model, const std::shared_ptr<const TensorFile>& opened, const std::string& file_name,
                  NameOf name_of, const std::set<std::string>& ignored, bool halves) {
  const TensorFile& file = *opened;
  const FormatLibrary& formats = model.family->library().formats();
  for (const Parameter& p : model.family->all_parameters(model.config)) {
    if (!p.absent_if.empty()) model.config[p.absent_if] = file.find(name_of(p)) ? 0 : 1;
  }
  std::set<std::string> used;
  uint32_t salt = 0;
  model.parameters = model.family->parameters(model.config);
  for (const Parameter& p : model.parameters) {
    ++salt;
    const std::string name = name_of(p);
    const StoredTensor* tensor = name.empty() ? nullptr : file.find(name);
    if (!tensor) {
      if (!p.optional) throw user_error("{}: tensor '{}' is missing (parameter {})", file_name, name, p.name);
      model.weights[p.name] = initial_weight(*model.family, model.config, p, 0, salt);
      continue;
    }
    used.insert(name);
    Weight w = weight_of(formats, *tensor, p, opened, file_name);
    if (halves && p.hf_halves > 0) halves_to_pairs(w, p.hf_halves);
    model.weights[p.name] = std::move(w);
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (used.contains(tensor.name) || ignored.contains(tensor.name)) continue;
    throw Error(
        Exit::user,
        fmt::format("{}: tensor '{}' has no place in the family '{}'", file_name, tensor.name, model.family->name()),
        "the model is of a kind this family does not describe");
  }
}

// Arrays per layer must hold one value throughout; the family has one number.
std::optional<double> gguf_number(const GgufMetadata& metadata, const std::string& key) {
  if (!metadata.has(key)) return std::nullopt;
  const std::vector<double> values = metadata.numbers(key);
  if (values.empty()) throw user_error("{}: key '{}' is an empty array", metadata.source, key);
  for (double v : values) {
    if (v != values.front()) {
      throw user_error("{}: key '{}' differs from layer to layer, which this family does not describe", metadata.source,
                       key);
    }
  }
  return values.front();
}

double checked_config(const std::string& file, const ConfigKey& key, double value) {
  const double limit = key.is_float ? 1e30 : 16777216.0 * 16;
  if (!std::isfinite(value) || value < 0 || value > limit || (!key.is_float && value != std::floor(value))) {
    throw user_error("{}: config value {} = {} is out of range", file, key.name, value);
  }
  return value;
}

}  // namespace

Model read_gguf(const LibraryRef& library, const std::filesystem::path& path) {
  const auto file = std::make_shared<const GgufFile>(path, library->formats());
  const GgufMetadata& metadata = file->metadata();
  Model model;
  model.family = library->family_of_gguf(metadata.text("general.architecture"));
  model.name = metadata.text("general.name", path.stem().string());
  graph::Config values;
  for (const ConfigKey& key : model.family->keys()) {
    for (const std::string& name : key.gguf) {
      const auto value = gguf_number(metadata, name);
      if (!value) continue;
      const auto [at, added] = values.emplace(key.name, *value);
      if (!added && at->second != *value) {
        throw user_error("{}: '{}' is {}, but {} is {} elsewhere", path.string(), name, *value, key.name, at->second);
      }
    }
    if (!values.contains(key.name) && !key.gguf_length.empty() && metadata.has(key.gguf_length)) {
      values[key.name] = static_cast<double>(metadata.texts(key.gguf_length).size());
    }
    if (const auto at = values.find(key.name); at != values.end())
      at->second = checked_config(path.string(), key, at->second);
  }
  model.config = model.family->config("", values);
  take_weights(model, file, path.string(), [](const Parameter& p) { return p.gguf; }, {}, false);
  if (metadata.has("tokenizer.ggml.model")) model.tokenizer = Tokenizer::from_gguf(metadata);
  model.metadata = metadata;
  return model;
}

Model read_hf(const LibraryRef& library, const std::filesystem::path& folder) {
  const std::string config_path = (folder / "config.json").string();
  const nlohmann::json config = nlohmann::json::parse(read_file(config_path, 16 << 20), nullptr, false);
  if (!config.is_object()) throw user_error("{}: not a JSON object", config_path);
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array() || architectures->empty() ||
      !architectures->front().is_string()) {
    throw user_error("{}: \"architectures\" does not name the model's kind", config_path);
  }
  Model model;
  model.family = library->family_of_hf(architectures->front().get<std::string>());
  model.name = folder.filename().string();
  for (const std::string& refused : model.family->hf_refused()) {
    const auto value = config.find(refused);
    if (value == config.end() || value->is_null() || (value->is_boolean() && !value->get<bool>())) continue;
    throw user_error("{}: \"{}\" is set, which the family '{}' does not describe", config_path, refused,
                     model.family->name());
  }
  graph::Config values;
  for (const ConfigKey& key : model.family->keys()) {
    for (const std::string& name : key.hf) {
      const auto value = config.find(name);
      if (value == config.end() || value->is_null()) continue;
      if (value->is_boolean()) {
        values[key.name] = value->get<bool>() ? 1 : 0;
      } else if (value->is_number()) {
        values[key.name] = checked_config(config_path, key, value->get<double>());
      } else {
        throw user_error("{}: \"{}\" is not a number", config_path, name);
      }
      break;
    }
  }
  model.config = model.family->config("", values);
  const std::shared_ptr<const TensorFile> file = open_tensors(folder, library->formats());
  take_weights(model, file, folder.string(), [](const Parameter& p) { return p.hf; }, {}, true);
  if (std::filesystem::exists(folder / "tokenizer.json")) model.tokenizer = Tokenizer::load(folder);
  return model;
}

Model read_model(const LibraryRef& library, const std::filesystem::path& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure)) {
    if (std::filesystem::exists(path / "model.gguf")) return read_gguf(library, path / "model.gguf");
    if (std::filesystem::exists(path / "config.json")) return read_hf(library, path);
    throw Error(Exit::user, fmt::format("{}: neither model.gguf nor config.json in this folder", path.string()),
                "give a GGUF file, a folder written by `lumen train`, or a Hugging Face folder");
  }
  if (!std::filesystem::exists(path, failure)) throw user_error("{}: no such file", path.string());
  return read_gguf(library, path);
}

}  // namespace lumen::model
