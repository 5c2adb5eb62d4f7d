#include "model/arch/chat/chat.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/carry.h"
#include "model/text/tokenizer/file/gguf_vocabulary.h"

namespace lumen::model::arch {
namespace {

using nlohmann::json;

constexpr const char* kTemplateKey = "tokenizer.chat_template";  // in GGUF metadata
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kMember = "chat_template";
constexpr const char* kTemplateFile = "chat_template.jinja";

json object_of(const SmallFiles& files, const std::string& name) {
  const auto found = files.find(name);
  json value = found == files.end() ? json::object() : parse_json(found->second, name, 64);
  return value.is_object() ? value : json::object();
}

void template_to_files(const std::string& text, SmallFiles& files) {
  files[kTemplateFile] = text;
  files.erase("chat_template.json");
  if (!files.contains(kConfig)) return;
  json config = object_of(files, kConfig);
  json& own = config[kMember];
  if (own.is_array()) {  // of several named templates the default one
    std::erase_if(own.get_ref<json::array_t&>(),
                  [](const json& one) { return one.is_object() && one.value("name", json()) == "default"; });
    own.push_back({{"name", "default"}, {"template", text}});
  } else {
    own = text;
  }
  files[kConfig] = json_print(config, kConfig, 2) + "\n";
}

// Adds end-of-generation tokens that the files do not list.
void ends_to_files(std::span<const text::TokenId> ends, int64_t vocabulary, SmallFiles& files) {
  std::vector<text::TokenId> all = named_ends(files, vocabulary);
  const size_t before = all.size();
  for (const text::TokenId id : ends)
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  if (all.size() == before) return;
  json generation = object_of(files, kGeneration);
  generation["eos_token_id"] = all.size() == 1 ? json(all.front()) : json(all);
  files[kGeneration] = json_print(generation, kGeneration, 2) + "\n";
}

// Replaces the chat template in a model's files and metadata, and adds `ends`, its end-of-turn tokens, to those of the
// files. Metadata without a tokenizer stays unchanged.
void replace_chat_template(const std::string& text, std::span<const text::TokenId> ends, int64_t vocabulary,
                           SmallFiles& files, file::GgufMetadata& metadata) {
  if (!files.empty()) {
    template_to_files(text, files);
    ends_to_files(ends, vocabulary, files);
  }
  if (!has_no_tokenizer(metadata)) metadata.set(kTemplateKey, text);
}

}  // namespace

void take_chat(Model& model, const templates::ChosenTemplate& chosen) {
  LUMEN_CHECK(model.tokenizer.has_value());
  const text::Tokenizer before = *model.tokenizer;
  model.tokenizer = with_chat(before, chosen);
  const std::vector<text::TokenId> ends = model.tokenizer->end_of_generation(), known = before.end_of_generation();
  if (before.chat_template() == chosen.text && ends == known) return;
  std::vector<text::TokenId> more;
  std::set_difference(ends.begin(), ends.end(), known.begin(), known.end(), std::back_inserter(more));
  replace_chat_template(chosen.text, more, model.tokenizer->size(), model.files, model.metadata);
  if (!more.empty() && !has_no_tokenizer(model.metadata)) ends_to_gguf(*model.tokenizer, more, model.metadata);
}

std::string adapter_chat_template(const std::filesystem::path& adapter) {
  std::error_code failure;
  const bool is_folder = std::filesystem::is_directory(adapter, failure);
  if (!is_folder && adapter.extension() != ".json" && adapter.extension() != ".safetensors") {
    if (!std::filesystem::exists(adapter, failure)) return {};  // the reader reports the error
    const MappedFile file(adapter);
    return file::read_gguf_metadata(file.bytes(), adapter.string()).text(kTemplateKey, "");
  }
  const SmallFiles files = small_files(is_folder ? adapter : adapter.parent_path());
  if (const auto own = files.find(kTemplateFile); own != files.end()) return own->second;
  const json config = object_of(files, kConfig);
  const auto member = config.find(kMember);
  if (member == config.end()) return {};
  if (member->is_string()) return *member;
  for (const json& one : member->is_array() ? *member : json::array())
    if (one.is_object() && one.value("name", json()) == "default" && one.value("template", json()).is_string())
      return one["template"];
  return {};
}

}  // namespace lumen::model::arch
