#include "model/arch/checkpoint/chat_files.h"

#include <algorithm>

#include "base/structured/json.h"

namespace lumen::model {
namespace {

using nlohmann::json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kMember = "chat_template";

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
  if (own.is_array()) {  // of several by name the usual one
    std::erase_if(own.get_ref<json::array_t&>(),
                  [](const json& one) { return one.is_object() && one.value("name", json()) == "default"; });
    own.push_back({{"name", "default"}, {"template", text}});
  } else {
    own = text;
  }
  files[kConfig] = json_print(config, kConfig, 2) + "\n";
}

// Further ends of texts, where the files do not name them.
void ends_to_files(std::span<const TokenId> ends, int64_t vocabulary, SmallFiles& files) {
  std::vector<TokenId> all = named_ends(files, vocabulary);
  const size_t before = all.size();
  for (const TokenId id : ends)
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  if (all.size() == before) return;
  json generation = object_of(files, kGeneration);
  generation["eos_token_id"] = all.size() == 1 ? json(all.front()) : json(all);
  files[kGeneration] = json_print(generation, kGeneration, 2) + "\n";
}

}  // namespace

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
  if (const auto file = files.find(kTemplateFile); file != files.end()) out.emplace("", file->second);
  const json own = object_of(files, "chat_template.json"), tokenizer = object_of(files, kConfig);
  if (own.contains(kMember)) take(own[kMember]);
  if (tokenizer.contains(kMember)) take(tokenizer[kMember]);
  return out;
}

void replace_chat_template(const std::string& text, std::span<const TokenId> ends, int64_t vocabulary,
                           SmallFiles& files, GgufMetadata& metadata) {
  if (!files.empty()) {
    template_to_files(text, files);
    ends_to_files(ends, vocabulary, files);
  }
  if (!has_no_tokenizer(metadata)) metadata.set(kTemplateKey, text);
}

}  // namespace lumen::model
