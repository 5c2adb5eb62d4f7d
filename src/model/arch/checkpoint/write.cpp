#include "model/arch/checkpoint/write.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "base/file/leave.h"
#include "base/log.h"
#include "model/arch/checkpoint/carry.h"
#include "model/arch/checkpoint/folder_tensors.h"
#include "model/arch/checkpoint/rows.h"
#include "model/arch/checkpoint/write_folder.h"
#include "model/arch/checkpoint/written.h"
#include "model/arch/family/config_file.h"
#include "model/arch/function.h"
#include "model/arch/low_rank_weights.h"
#include "model/arch/split_weights.h"
#include "model/file/gguf_split.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"

namespace lumen::model::arch {

Weight fetched(const Model& model, const Parameter& p, const WeightSource& source) {
  const Weight& own = model.weights.at(p.name);
  if (own.bytes.size() > 0 || !source) return own;
  Weight made = source(p);
  LUMEN_CHECK(made.type == own.type, "parameter {} is {}, but {} was announced", p.name, print(made.type),
              print(own.type));
  return made;
}

FormatRef main_format(const Model& model, bool floats) {
  std::map<std::string, std::pair<int64_t, FormatRef>> counts;
  for (const Parameter& p : model.parameters) {
    const Weight& w = model.weights.at(p.name);
    if (floats && (is_rounded(w) || p.is_vector())) continue;
    const FormatRef& f = w.type.element.format;
    auto& entry = counts[f ? f->name : ""];
    entry.first += p.count();
    entry.second = f;
  }
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  return most == counts.end() ? nullptr : most->second.second;
}

namespace {

std::string size_label(int64_t weights) {
  if (weights >= 1'000'000'000) return fmt::format("{:.3g}B", weights / 1e9);
  if (weights >= 1'000'000) return fmt::format("{:.3g}M", weights / 1e6);
  return fmt::format("{:.3g}K", weights / 1e3);
}

void write_tokenizer(const Model& model, file::GgufMetadata& metadata) {
  const int64_t vocabulary = vocabulary_of(model);
  const char* kind = "tokenizer.ggml.model";
  // A pre-tokenizer that had no name when the file was written may have one now.
  const bool anew =
      model.tokenizer && (!metadata.has(kind) || metadata.text("tokenizer.ggml.pre", "") == text::kUnnamedSplit);
  if (anew) model.tokenizer->to_gguf(metadata);
  if (!metadata.has(kind)) metadata.set(kind, kNoTokenizer);
  carry_to_gguf(model.files, vocabulary, metadata);
  if (!model.tokenizer) {
    const std::vector<text::TokenId> named = named_ends(model.files, vocabulary);
    if (!named.empty() && !metadata.has("tokenizer.ggml.eos_token_id"))
      metadata.set("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(named.front()));
    return;
  }
  if (anew || !model.files.empty()) ends_to_gguf(*model.tokenizer, named_ends(model.files, vocabulary), metadata);
  if (model.tokenizer->size() > vocabulary)
    warn(fmt::format("'{}': the tokenizer has {} tokens, but the model only {}; other programs refuse such a file",
                     model.name, model.tokenizer->size(), vocabulary));
  if (!text::is_known_split(metadata))
    warn(
        fmt::format("'{}': other programs have no name for this tokenizer's pre-tokenizer; they refuse "
                    "the file, or split text differently",
                    model.name));
  text::pad_vocabulary(metadata, vocabulary);
}

}  // namespace

bool is_omitted(const Model& model, const Parameter& p, const graph::Config& back) {
  // Parts of a tensor that several parameters share are all there.
  if (!p.optional || p.init == "normal" || p.init == "residual" || !p.hf_rows.empty()) return false;
  const Weight& w = model.weights.at(p.name);
  if (!w.is_f32()) return false;
  Model there;
  there.family = model.family;
  there.config = back;
  there.metadata = model.metadata;
  for (const Parameter& again : own_parameters(there)) {
    if (again.name == p.name)
      return again.shape == p.shape && w.bytes == initial_weight(*model.family, back, again, 0, 0).bytes;
  }
  return false;
}

namespace {

// A weight as GGUF files hold it.
Weight in_gguf(const Parameter& p, Weight w) {
  if (!p.gguf_minus_exp) return w;
  if (!w.is_f32()) throw user_error("parameter {} must be held in floats", p.name);
  std::vector<float> values(w.f32().begin(), w.f32().end());
  for (float& v : values) v = -std::exp(v);
  return f32_weight(w.type.shape, values);
}

}  // namespace

void write_gguf(const Model& model, const std::filesystem::path& path, int file_type, int64_t split_bytes,
                const WeightSource& source) {
  file::GgufMetadata metadata = model.metadata;
  if (metadata.has(kOnlineRotations))
    warn(
        fmt::format("'{}': inputs of some weights are rotated at run time ({}): other programs "
                    "will compute wrong results",
                    model.name, kOnlineRotations));
  if (const char* const key = split_key_of(model))
    warn(fmt::format("'{}': weights are stored in parts ({}): other programs will not find them", model.name, key));
  if (metadata.has(kLowRankWeights))
    warn(fmt::format("'{}': weights have low-rank branches ({}): other programs will not compute them", model.name,
                     kLowRankWeights));
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

  std::vector<file::TensorSpec> specs;
  std::vector<const Parameter*> written;
  std::map<std::string, std::vector<float>> numbers;  // by metadata key, layer by layer
  for (const Parameter& p : model.parameters) {
    if (!p.gguf_key.empty()) numbers[p.gguf_key].push_back(decoded(fetched(model, p, source)).f32()[0]);
    // What has no name in GGUF files is of Hugging Face folders alone.
    if (p.gguf.empty() || is_omitted(model, p, back)) continue;
    specs.push_back(spec_of(p.gguf, model.weights.at(p.name).type));
    written.push_back(&p);
  }
  for (auto& [key, all] : numbers) metadata.set(key, file::GgufArray(std::move(all)));
  Weight current;
  write_gguf_files(
      path, std::move(metadata), specs,
      [&](size_t i) -> std::span<const uint8_t> {
        leave_to_file({current.bytes.data(), current.bytes.size()});
        current = {};
        current = in_gguf(*written[i], fetched(model, *written[i], source));
        return {current.bytes.data(), current.bytes.size()};
      },
      split_bytes);
}

namespace {

bool is_plain_float(const graph::Element& e) {
  return !e.format || is_plain(*e.format, Scalar::f32) || is_plain(*e.format, Scalar::f16) ||
         is_plain(*e.format, Scalar::bf16);
}

}  // namespace

std::vector<std::string> output_forms() {
  std::vector<std::string> out = {Destination::kGguf, Destination::kFolder};
  for (const std::string& name : Packing::outputs()) out.push_back(name);
  return out;
}

bool takes_stacked_alone(const std::string& form) {
  return Packing::is_stacked(form);
}

void require_writable_as(const Model& model, const std::string& form) {
  if (form == Destination::kGguf) return;
  require_folder(model, form != Destination::kFolder);
  if (form != Destination::kFolder && split_key_of(model))
    throw Error(Exit::user,
                fmt::format("'{}' has weights in parts, which folders of packed weights cannot represent", model.name),
                "write a GGUF file");
  if (form != Destination::kFolder && model.metadata.has(kLowRankWeights))
    throw Error(Exit::user,
                fmt::format("'{}' has low-rank branches, which folders of packed weights cannot represent", model.name),
                "write a GGUF file");
  if (form != Destination::kFolder) {
    (void)folder_tensors(model, {}, model.config, form);
    return;
  }
  for (const Parameter& p : model.parameters) {
    const graph::Element& e = model.weights.at(p.name).type.element;
    if (is_plain_float(e) || !e.format->safetensors_type.empty()) continue;
    throw Error(
        Exit::user,
        fmt::format("a Hugging Face folder cannot hold weights in the format '{}' ('{}')", e.format->name, p.gguf),
        "add --type with a float format to decode them, write a GGUF file, or a folder of packed weights");
  }
}

void write_model(const Model& model, const Destination& to, const WeightSource& source) {
  const auto known = output_forms();
  if (std::find(known.begin(), known.end(), to.form) == known.end())
    throw usage_error("'{}' is not an output format; known: {}", to.form, fmt::join(known, ", "));
  if (to.is_gguf()) return write_gguf(model, to.path, to.file_type, to.part_bytes, source);
  write_folder(model, to.path, to.form == Destination::kFolder ? "" : to.form, to.part_bytes, source);
}

void write_hf(const Model& model, const std::filesystem::path& folder, const WeightSource& source) {
  write_folder(model, folder, "", 0, source);
}

}  // namespace lumen::model::arch
