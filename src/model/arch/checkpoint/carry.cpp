#include "model/arch/checkpoint/carry.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file/file.h"
#include "base/log.h"
#include "base/structured/json.h"
#include "model/arch/modules/modules.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

constexpr const char* kNames[] = {"config.json",
                                  "generation_config.json",
                                  "tokenizer_config.json",
                                  "chat_template.jinja",
                                  "chat_template.json",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "vocab.json",
                                  "merges.txt",
                                  "tokenizer.model",
                                  "vocab.txt",
                                  kModulesFile,
                                  kPromptsFile,
                                  kLengthFile,
                                  kPoolingFile};
constexpr size_t kLargest = size_t{64} << 20, kMostEnds = 1024;
constexpr const char* kTemplate = "tokenizer.chat_template";

// Modes that GGUF files have numbers for.
struct PoolingMode {
  const char *name, *key;
  uint32_t number;
};
constexpr PoolingMode kPoolings[] = {{"mean", "pooling_mode_mean_tokens", 1},
                                     {"cls", "pooling_mode_cls_token", 2},
                                     {"lasttoken", "pooling_mode_lasttoken", 3}};

struct Default {
  const char *hf, *gguf;
  bool is_integer;
};
// Default sampling parameters.
constexpr Default kDefaults[] = {{"temperature", "general.sampling.temp", false},
                                 {"top_k", "general.sampling.top_k", true},
                                 {"top_p", "general.sampling.top_p", false},
                                 {"min_p", "general.sampling.min_p", false},
                                 {"repetition_penalty", "general.sampling.penalty_repeat", false}};
constexpr const char* kEnds = "eos_token_id";
constexpr Default kTokens[] = {{"bos_token_id", "tokenizer.ggml.bos_token_id", true},
                               {"pad_token_id", "tokenizer.ggml.padding_token_id", true}};

json object_of(const SmallFiles& files, const std::string& name) {
  const auto found = files.find(name);
  if (found == files.end()) return json::object();
  json value = parse_json(found->second, name, 64);
  return value.is_object() ? value : json::object();
}

// Templates by name; "" is the default.
std::map<std::string, std::string> templates_of(const SmallFiles& files) {
  std::map<std::string, std::string> out;
  const auto take = [&](const json& value) {
    if (value.is_string()) out.emplace("", value.get<std::string>());
    if (!value.is_array()) return;
    for (const json& one : value) {
      if (!one.is_object() || !one.contains("name") || !one.contains("template")) continue;
      if (!one["name"].is_string() || !one["template"].is_string()) continue;
      const std::string name = one["name"].get<std::string>();
      out.emplace(name == "default" ? "" : name, one["template"].get<std::string>());
    }
  };
  if (const auto file = files.find("chat_template.jinja"); file != files.end()) out.emplace("", file->second);
  const json own = object_of(files, "chat_template.json"), tokenizer = object_of(files, "tokenizer_config.json");
  if (own.contains("chat_template")) take(own["chat_template"]);
  if (tokenizer.contains("chat_template")) take(tokenizer["chat_template"]);
  return out;
}

// One id or several; ids out of range are skipped.
void take_ids(const json& object, const char* key, const std::string& file, int64_t below,
              std::vector<text::TokenId>& out) {
  const auto value = object.find(key);
  if (value == object.end() || value->is_null()) return;
  const auto take = [&](const json& id) {
    if (!id.is_number_integer()) throw user_error("{}: \"{}\" is neither a token's id nor a list of them", file, key);
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(below);
    const auto one = fits ? static_cast<text::TokenId>(id.get<uint64_t>()) : -1;
    if (fits && std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
  };
  if (!value->is_array()) return take(*value);
  if (value->size() > kMostEnds) throw user_error("{}: \"{}\" has more than {} ids", file, key, kMostEnds);
  for (const json& id : *value) take(id);
}

}  // namespace

SmallFiles small_files(const std::filesystem::path& folder) {
  SmallFiles out;
  for (const char* name : kNames) {
    std::error_code failure;
    if (std::filesystem::is_regular_file(folder / name, failure)) out[name] = read_file(folder / name, kLargest);
  }
  if (const auto modules = out.find(kModulesFile); modules != out.end())
    for (const std::string& own : read_modules(modules->second, (folder / kModulesFile).string()).folders()) {
      const std::string name = own + "/config.json";
      std::error_code failure;
      if (std::filesystem::is_regular_file(folder / name, failure)) out[name] = read_file(folder / name, kLargest);
    }
  return out;
}

std::vector<text::TokenId> named_ends(const SmallFiles& files, int64_t vocabulary) {
  std::vector<text::TokenId> out;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json object = object_of(files, name);
    take_ids(object, kEnds, name, vocabulary, out);
    if (const auto text = object.find("text_config"); text != object.end() && text->is_object())
      take_ids(*text, kEnds, name, vocabulary, out);
  }
  return out;
}

std::optional<std::string> pooling_mode(const std::string& text, const std::string& where) {
  constexpr std::string_view kMode = "pooling_mode";
  const json config = parse_json(text, where, 64);
  if (!config.is_object()) throw user_error("{}: not a JSON object", where);
  std::optional<std::string> chosen;
  const auto choose = [&](std::string name) {
    if (chosen)
      throw Error(Exit::user, fmt::format("{}: pooling by several modes is not supported", where),
                  "choose with --pooling mean, cls or last");
    chosen = std::move(name);
  };
  for (const auto& [key, value] : config.items()) {
    if (key == kMode && value.is_string()) choose(value.get<std::string>());
    if (key == kMode && value.is_array())
      for (const json& one : value) choose(one.is_string() ? one.get<std::string>() : one.dump());
    if (key == kMode || !key.starts_with(kMode) || value != true) continue;
    std::string name = key.substr(kMode.size() + 1);
    for (const std::string_view end : {"_tokens", "_token"})
      if (name.ends_with(end)) name.resize(name.size() - end.size());
    choose(name == "mean_sqrt_len" ? "mean_sqrt_len_tokens" : name);
  }
  return chosen;
}

namespace {

std::string pooling_key(const file::GgufMetadata& metadata) {
  return metadata.text("general.architecture", "") + ".pooling_type";
}

// The file that defines the pooling.
std::string pooling_file(const SmallFiles& files) {
  const auto modules = files.find(kModulesFile);
  if (modules == files.end()) return kPoolingFile;
  const std::string folder = read_modules(modules->second, kModulesFile).pooling;
  return folder.empty() ? "" : folder + "/config.json";
}

void take_pooling(const SmallFiles& files, file::GgufMetadata& metadata) {
  const auto pooling = files.find(pooling_file(files));
  if (pooling == files.end() || metadata.has(pooling_key(metadata))) return;
  const auto mode = pooling_mode(pooling->second, pooling->first);
  if (!mode) return;
  for (const PoolingMode& known : kPoolings)
    if (*mode == known.name) return metadata.set(pooling_key(metadata), known.number);
  warn(fmt::format("{}: GGUF files have no number for pooling by {}; the file is written without it", pooling->first,
                   *mode));
}

// Writes the files that define the pooling of a folder for other programs.
void pooling_to_hf(const file::GgufMetadata& metadata, SmallFiles& files) {
  const std::string key = pooling_key(metadata);
  if (!metadata.has(key) || files.contains(kPoolingFile)) return;
  const int64_t number = metadata.integer(key);
  json config = {
      {"word_embedding_dimension", metadata.integer(metadata.text("general.architecture") + ".embedding_length")}};
  bool known = false;
  for (const PoolingMode& mode : kPoolings) {
    config[mode.key] = mode.number == number;
    known = known || mode.number == number;
  }
  if (!known) return;
  files[kPoolingFile] = json_print(config, kPoolingFile, 2) + "\n";
  const auto module = [](int index, const char* path, const char* type) {
    return json{{"idx", index}, {"name", std::to_string(index)}, {"path", path}, {"type", type}};
  };
  const json modules = {module(0, "", "sentence_transformers.models.Transformer"),
                        module(1, "1_Pooling", "sentence_transformers.models.Pooling")};
  files.try_emplace("modules.json", json_print(modules, "modules.json", 2) + "\n");
}

}  // namespace

void carry_to_gguf(const SmallFiles& files, int64_t vocabulary, file::GgufMetadata& metadata) {
  for (const auto& [name, text] : templates_of(files)) {
    const std::string key = name.empty() ? kTemplate : fmt::format("{}.{}", kTemplate, name);
    if (!metadata.has(key)) metadata.set(key, text);
  }
  take_pooling(files, metadata);
  const json generation = object_of(files, "generation_config.json"), config = object_of(files, "config.json");
  for (const Default& d : kDefaults) {
    const auto value = generation.find(d.hf);
    if (value == generation.end() || value->is_null() || metadata.has(d.gguf)) continue;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!d.is_integer && std::isfinite(number))
      metadata.set(d.gguf, static_cast<float>(number));
    else if (number == std::floor(number) && number >= INT32_MIN && number <= INT32_MAX)  // 40.0 is integral, too
      metadata.set(d.gguf, static_cast<int32_t>(number));
    else
      warn(fmt::format("generation_config.json: \"{}\" is not a {}number; the file is written without it", d.hf,
                       d.is_integer ? "whole " : ""));
  }
  for (const Default& d : kTokens) {
    for (const json* source : {&generation, &config}) {
      const auto value = source->find(d.hf);
      if (value == source->end() || metadata.has(d.gguf)) continue;
      const json& first = value->is_array() && !value->empty() ? value->front() : *value;
      if (first.is_number_unsigned() && first.get<uint64_t>() < static_cast<uint64_t>(vocabulary))
        metadata.set(d.gguf, first.get<uint32_t>());
    }
  }
}

SmallFiles carry_to_hf(const SmallFiles& files, const file::GgufMetadata& metadata,
                       std::span<const text::TokenId> ends) {
  SmallFiles out = files;
  out.erase("config.json");
  if (templates_of(files).empty() && metadata.has(kTemplate)) out["chat_template.jinja"] = metadata.text(kTemplate);
  pooling_to_hf(metadata, out);
  // A folder's own config.json is used as it is.
  if (!files.contains("generation_config.json") && !files.contains("config.json")) {
    json generation = json::object();
    for (const Default& d : kDefaults) {
      if (!metadata.has(d.gguf)) continue;
      if (d.is_integer)
        generation[d.hf] = metadata.integer(d.gguf);
      else
        generation[d.hf] = metadata.number(d.gguf);
    }
    for (const Default& d : kTokens)
      if (metadata.has(d.gguf)) generation[d.hf] = metadata.integer(d.gguf);
    if (ends.size() == 1) generation[kEnds] = ends.front();
    if (ends.size() > 1) generation[kEnds] = std::vector<text::TokenId>(ends.begin(), ends.end());
    if (!generation.empty()) out["generation_config.json"] = json_print(generation, "generation_config.json", 2) + "\n";
  }
  return out;
}

}  // namespace lumen::model::arch
