#include "model/arch/checkpoint/write.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/pairs.h"
#include "model/arch/checkpoint/parts.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/family/config_file.h"
#include "model/arch/function.h"
#include "model/file/gguf_split.h"
#include "model/file/safetensors.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"
#include "run/device/require.h"

namespace lumen::model {
namespace {

TensorSpec spec_of(const std::string& name, const graph::Type& type) {
  TensorSpec spec;
  spec.name = name;
  for (const graph::Dim& d : type.shape) spec.shape.push_back(d.number());
  spec.element = type.element;
  return spec;
}

// A weight of the model, made where the model has its type alone.
Weight fetched(const Model& model, const Parameter& p, const WeightSource& source) {
  const Weight& own = model.weights.at(p.name);
  if (own.bytes.size() > 0 || !source) return own;
  Weight made = source(p);
  LUMEN_CHECK(made.type == own.type, "parameter {} is {}, but {} was announced", p.name, print(made.type),
              print(own.type));
  return made;
}

// A weight in the order and the element of Hugging Face folders, and the type that this has.
Weight in_folder(const Parameter& p, Weight w) {
  if (p.hf_halves > 0) pairs_to_halves(w, p.hf_halves, p.hf_turned);
  if (p.hf_plus != 0) {
    std::vector<float> values(w.f32().begin(), w.f32().end());
    for (float& v : values) v = static_cast<float>(v - p.hf_plus);
    w = f32_weight(w.type.shape, values);
  }
  if (p.hf_transposed) w = transposed(is_rounded(w) ? decoded(w) : w);
  return w;
}
graph::Type type_in_folder(const Parameter& p, const Weight& w) {
  graph::Type type = w.type;
  if (!p.hf_transposed || type.shape.size() < 2) return type;
  if (is_rounded(w)) type.element = {Scalar::f32, nullptr};
  std::swap(type.shape[type.shape.size() - 2], type.shape.back());
  return type;
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
  if (weights >= 1'000'000'000) return fmt::format("{:.3g}B", weights / 1e9);
  if (weights >= 1'000'000) return fmt::format("{:.3g}M", weights / 1e6);
  return fmt::format("{:.3g}K", weights / 1e3);
}

// Numbers below this are ids; a family may have none.
int64_t vocabulary_of(const Model& model) {
  const auto found = model.config.find("vocab");
  return found == model.config.end() ? 0 : static_cast<int64_t>(found->second);
}

// At which tokens texts end: those its file names, in their order, then all the tokenizer knows.
std::vector<TokenId> ends_of(const Model& model) {
  std::vector<TokenId> ends = ends_of_gguf(model.metadata, INT32_MAX);
  if (model.tokenizer) {
    std::vector<TokenId> known = model.tokenizer->end_of_generation();
    if (const auto eos = model.tokenizer->eos()) known.insert(known.begin(), *eos);
    for (const TokenId id : known)
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  }
  std::erase_if(ends, [&](TokenId id) { return id >= vocabulary_of(model); });
  return ends;
}

void write_tokenizer(const Model& model, GgufMetadata& metadata) {
  const int64_t vocabulary = vocabulary_of(model);
  const char* kind = "tokenizer.ggml.model";
  // What was written without a name may have one by now.
  const bool anew =
      model.tokenizer && (!metadata.has(kind) || metadata.text("tokenizer.ggml.pre", "") == kUnnamedSplit);
  if (anew) model.tokenizer->to_gguf(metadata);
  if (!metadata.has(kind)) metadata.set(kind, kNoTokenizer);
  carry_to_gguf(model.files, vocabulary, metadata);
  if (!model.tokenizer) {
    const std::vector<TokenId> named = named_ends(model.files, vocabulary);
    if (!named.empty() && !metadata.has("tokenizer.ggml.eos_token_id"))
      metadata.set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(named.front()));
    return;
  }
  if (anew || !model.files.empty()) ends_to_gguf(*model.tokenizer, named_ends(model.files, vocabulary), metadata);
  if (model.tokenizer->size() > vocabulary)
    warn(fmt::format("'{}': the tokenizer has {} tokens, but the model only {}; other programs refuse such a file",
                     model.name, model.tokenizer->size(), vocabulary));
  if (!is_known_split(metadata))
    warn(
        fmt::format("'{}': no other program has a name for the way this tokenizer cuts texts into words; others refuse "
                    "the file, or cut texts differently",
                    model.name));
  pad_vocabulary(metadata, vocabulary);
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

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type, int64_t split_bytes,
                const WeightSource& source) {
  GgufMetadata metadata = model.metadata;
  if (metadata.has(kOnlineRotations))
    warn(
        fmt::format("'{}': what some weights are multiplied with is rotated while the model runs ({}): other programs "
                    "will compute something else",
                    model.name, kOnlineRotations));
  const FormatRef main = main_format(model);
  if (file_type < 0) file_type = main && main->gguf_file_type ? *main->gguf_file_type : 0;
  metadata.set("general.architecture", model.family->gguf_architecture());
  metadata.set("general.type", std::string("model"));
  metadata.set("general.name", model.name);
  metadata.set("general.size_label", size_label(model.weight_count()));
  metadata.set("general.file_type", static_cast<uint32_t>(file_type));
  if (main) metadata.set("general.quantization_version", uint32_t{2});
  const graph::Config back = write_gguf_config(*model.family, model.config, metadata);
  name_family(*model.family, metadata);
  write_tokenizer(model, metadata);

  std::vector<TensorSpec> specs;
  std::vector<const Parameter*> written;
  for (const Parameter& p : model.parameters) {
    if (is_omitted(model, p, back)) continue;
    specs.push_back(spec_of(p.gguf, model.weights.at(p.name).type));
    written.push_back(&p);
  }
  Weight current;
  write_gguf_files(
      path, std::move(metadata), specs,
      [&](size_t i) -> std::span<const uint8_t> {
        current = {};
        current = fetched(model, *written[i], source);
        return {current.bytes.data(), current.bytes.size()};
      },
      split_bytes);
}

namespace {

// What a text or a file can have wrong is found before anything is written.
void check_room_and_pairs(const Model& model, const std::filesystem::path& folder) {
  const std::string from = model.metadata.entries().empty() ? model.name : model.metadata.source;
  for (const Parameter& p : model.parameters) {
    check_pairs(*model.family, model.config, p, from);
    if (p.hf_plus != 0 && !model.weights.at(p.name).is_f32())
      throw user_error("{}: parameter '{}' must be held in floats for a Hugging Face folder", from, p.name);
  }
  int64_t largest = 0;
  std::map<std::string, int64_t> whole;  // tensors that are put together, which takes them twice
  for (const Parameter& p : model.parameters) {
    const bool stays = p.hf_rows.empty() && p.hf_halves == 0 && p.hf_plus == 0 && !p.hf_transposed &&
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

// The model's own config.json, or the beginning of one.
nlohmann::json config_to_complete(const Model& model) {
  nlohmann::json config;
  if (const auto own = model.files.find("config.json"); own != model.files.end())
    config = parse_json(own->second, "config.json");
  if (!config.is_object()) {
    config = nlohmann::json::object();
    if (model.family->hf_architectures().empty())
      throw user_error("config.json of '{}' is no JSON object, and its family has no attribute 'hf'", model.name);
    config["architectures"] = {model.family->hf_architectures().front()};
    config["model_type"] = model.family->hf_type();
    // Readers have ids of their own for what is not said, which may lie outside of this vocabulary.
    const std::vector<TokenId> ends = ends_of(model);
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

// The tensors of a folder in their order, and what makes each when it is written.
struct FolderTensors {
  FolderTensors(const Model& model, const WeightSource& source, const graph::Config& back)
      : model_(model), source_(source) {
    std::map<std::string, std::vector<const Parameter*>> between;  // several in one tensor, by its name
    for (const Parameter& p : model.parameters) {
      if (is_omitted(model, p, back)) continue;
      if (!p.hf_rows.empty()) {
        between[p.hf_rows].push_back(&p);
      } else {
        if (p.hf.empty()) throw user_error("parameter '{}' has values no Hugging Face folder can hold", p.name);
        add(p);
      }
    }
    for (const auto& [name, parts] : between) add_whole(name, parts);
  }

  std::vector<TensorSpec> specs;
  std::vector<std::function<Weight()>> weights;

 private:
  void add(const Parameter& p) {
    const auto make = [&model = model_, &p, &source = source_] { return in_folder(p, fetched(model, p, source)); };
    const graph::Type type = type_in_folder(p, model_.weights.at(p.name));
    const size_t expert = p.hf.find("{e}");
    if (expert == std::string::npos) {
      specs.push_back(spec_of(p.hf, type));
      weights.emplace_back(make);
      return;
    }
    const graph::Shape one(type.shape.begin() + 1, type.shape.end());
    const int64_t count = type.shape[0].number();
    const auto all = std::make_shared<Weight>();  // while its parts are written
    for (int64_t e = 0; e < count; ++e) {
      std::string name = p.hf;
      specs.push_back(spec_of(name.replace(expert, 3, std::to_string(e)), {one, type.element}));
      weights.emplace_back([make, all, one, e, count] {
        if (e == 0) *all = make();
        const int64_t rows = all->rows() / count;
        std::vector<int64_t> source_rows(rows);
        for (int64_t r = 0; r < rows; ++r) source_rows[r] = e * rows + r;
        Weight part = take_rows(*all, one, source_rows);
        if (e + 1 == count) *all = {};
        return part;
      });
    }
  }

  void add_whole(const std::string& name, const std::vector<const Parameter*>& parts) {
    specs.push_back(spec_of(name, type_of_whole(model_, parts)));
    weights.emplace_back([&model = model_, &source = source_, parts] {
      Model some;
      some.family = model.family;
      for (const Parameter* p : parts) some.weights[p->name] = fetched(model, *p, source);
      return whole_of(some, parts);
    });
  }

  const Model& model_;
  const WeightSource& source_;
};

}  // namespace

void write_hf(const Model& model, const std::filesystem::path& folder, const WeightSource& source) {
  if (model.family->hf_architectures().empty() && !model.files.contains("config.json"))
    throw Error(Exit::user,
                fmt::format("the family '{}' has no attribute 'hf', so its models have no Hugging Face folder",
                            model.family->name()),
                "write a GGUF file, or give the family the attributes hf and hf_type");
  if (model.metadata.has(kOnlineRotations))
    throw Error(
        Exit::user,
        fmt::format("'{}' rotates what some weights are multiplied with while it runs, which a folder cannot say",
                    model.name),
        "write a GGUF file");
  check_room_and_pairs(model, folder);
  AtomicFolder out(folder);
  nlohmann::json config = config_to_complete(model);
  config.erase("quantization_config");
  config.erase(config.contains("dtype") ? "torch_dtype" : "dtype");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype_of_model(model);
  const std::vector<std::string> own = write_hf_config(*model.family, model.config, config);
  if (!own.empty())
    warn(fmt::format("config.json has no words for {} of this model: other programs will compute something else",
                     fmt::join(own, ", ")));
  const graph::Config back = model.family->config("", read_hf_config(*model.family, config, "config.json"));
  FolderTensors tensors(model, source, back);
  SafetensorsWriter writer(out.path() / "model.safetensors", {{"format", "pt"}}, tensors.specs);
  for (const auto& make : tensors.weights) writer.write(make().bytes);
  writer.commit();
  SmallFiles carried = carry_to_hf(model.files, model.metadata, ends_of(model));
  if (model.tokenizer) carried.try_emplace("tokenizer_config.json", model.tokenizer->to_config_json());
  for (const auto& [name, text] : carried) {
    // A folder in a folder that is there already is not moved into it.
    const bool is_nested = name.find('/') != std::string::npos;
    const std::filesystem::path file = (is_nested && out.path().parent_path() == folder ? folder : out.path()) / name;
    if (is_nested) std::filesystem::create_directories(file.parent_path());
    write_file_atomic(file, text);
  }
  if (model.tokenizer) write_file_atomic(out.path() / "tokenizer.json", model.tokenizer->to_json());
  // Last: whoever finds it in a folder that was there before finds all the rest.
  write_file_atomic(out.path() / "config.json", config.dump(2) + "\n");
  out.commit();
}

}  // namespace lumen::model
