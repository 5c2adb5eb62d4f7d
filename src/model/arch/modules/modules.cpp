#include "model/arch/modules/modules.h"

#include <algorithm>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"

namespace lumen::model::arch {
namespace {

constexpr uint64_t kLargest = 1 << 20;
constexpr size_t kMostModules = 64;

nlohmann::json object_of(const std::string& text, const std::string& where) {
  nlohmann::json value = parse_json(text, where, 64);
  if (!value.is_object()) throw user_error("{}: not a JSON object", where);
  return value;
}

// A folder directly in the model's.
void check_folder(const std::string& path, const std::string& where) {
  if (path.empty() || path.find('/') != std::string::npos || path.find('\\') != std::string::npos || path == "." ||
      path == "..")
    throw user_error("{}: the module's path '{}' is not a folder inside the model's", where, path);
}

// Tensors of a model's file, and those of its dense layers under names of their own.
class WithDense : public file::TensorFile {
 public:
  explicit WithDense(std::shared_ptr<const file::TensorFile> model) : files_{std::move(model)} {
    tensors_ = files_.front()->tensors();
  }
  void add(std::shared_ptr<const file::TensorFile> layer, const std::string& prefix) {
    for (const file::StoredTensor& t : layer->tensors()) {
      tensors_.push_back(t);
      tensors_.back().name = prefix + t.name;
    }
    files_.push_back(std::move(layer));
  }
  void finish(const std::string& name) { index(name); }

 private:
  std::vector<std::shared_ptr<const file::TensorFile>> files_;  // own the bytes
};

}  // namespace

std::vector<std::string> SentenceModules::folders() const {
  std::vector<std::string> out = dense;
  if (!pooling.empty()) out.push_back(pooling);
  return out;
}

SentenceModules read_modules(const std::string& text, const std::string& where) {
  const nlohmann::json list = parse_json(text, where, 64);
  if (!list.is_array() || list.size() > kMostModules) throw user_error("{}: not a list of modules", where);
  SentenceModules out;
  for (const nlohmann::json& one : list) {
    if (!one.is_object()) throw user_error("{}: not a list of modules", where);
    const std::string type = json_text(one, "type", where), path = json_text(one, "path", where);
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling" || kind == "Dense") check_folder(path, where);
    if (kind == "Pooling") {
      if (!out.pooling.empty()) throw user_error("{}: there are two modules for pooling", where);
      out.pooling = path;
    } else if (kind == "Dense") {
      if (out.pooling.empty() || out.normalizes)
        throw user_error("{}: the dense layer '{}' does not follow the pooling", where, path);
      out.dense.push_back(path);
    } else if (kind == "Normalize") {
      out.normalizes = true;
    } else if (kind != "Transformer" && kind != "Router" && kind != "Dropout") {
      out.unknown.push_back(type);
    }
  }
  return out;
}

std::optional<SentenceModules> modules_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kModulesFile;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(file, failure)) return std::nullopt;
  return read_modules(read_file(file, kLargest), file.string());
}

void add_dense(const std::filesystem::path& folder, const SentenceModules& modules, const FormatLibrary& formats,
               nlohmann::json& config, std::shared_ptr<const file::TensorFile>& tensors) {
  config.erase(kDense);  // no program has such a member
  if (modules.dense.empty()) return;
  auto joined = std::make_shared<WithDense>(tensors);
  for (size_t i = 0; i < modules.dense.size(); ++i) {
    const std::filesystem::path own = folder / modules.dense[i], about = own / "config.json";
    std::error_code failure;
    if (!std::filesystem::is_regular_file(about, failure) ||
        !std::filesystem::is_regular_file(own / "model.safetensors", failure))
      throw Error(Exit::user, fmt::format("{}: the dense layer lacks config.json or model.safetensors", own.string()),
                  "download the whole repository");
    config[kDense][std::to_string(i)] = object_of(read_file(about, kLargest), about.string());
    joined->add(file::open_tensors(own / "model.safetensors", formats), fmt::format("{}.{}.", kDense, i));
  }
  joined->finish(folder.string());
  tensors = std::move(joined);
}

std::vector<std::string> put_dense(const nlohmann::json& dense, std::map<std::string, std::string>& files) {
  const auto entry = [](size_t index, const std::string& path, const char* type) {
    return nlohmann::json{{"idx", index},
                          {"name", std::to_string(index)},
                          {"path", path},
                          {"type", fmt::format("sentence_transformers.models.{}", type)}};
  };
  SentenceModules modules;
  if (const auto own = files.find(kModulesFile); own != files.end()) modules = read_modules(own->second, kModulesFile);
  if (modules.dense.size() != dense.size()) {
    if (modules.pooling.empty()) modules.pooling = "1_Pooling";
    modules.dense.clear();
    nlohmann::json list = {entry(0, "", "Transformer"), entry(1, modules.pooling, "Pooling")};
    for (size_t i = 0; i < dense.size(); ++i) {
      modules.dense.push_back(fmt::format("{}_Dense", i + 2));
      list.push_back(entry(i + 2, modules.dense.back(), "Dense"));
    }
    list.push_back(entry(dense.size() + 2, fmt::format("{}_Normalize", dense.size() + 2), "Normalize"));
    files[kModulesFile] = json_print(list, kModulesFile, 2) + "\n";
    files.try_emplace(modules.pooling + "/config.json", "{\n  \"pooling_mode_mean_tokens\": true\n}\n");
  }
  for (size_t i = 0; i < modules.dense.size(); ++i) {
    const std::string name = modules.dense[i] + "/config.json";
    files.try_emplace(name, json_print(dense.at(std::to_string(i)), name, 2) + "\n");
  }
  return modules.dense;
}

Prompts prompts_of(const std::map<std::string, std::string>& files) {
  Prompts out;
  const auto file = files.find(kPromptsFile);
  if (file == files.end()) return out;
  const nlohmann::json said = object_of(file->second, kPromptsFile);
  if (const auto all = said.find("prompts"); all != said.end() && !all->is_null()) {
    if (!all->is_object()) throw user_error("{}: \"prompts\" is not an object", kPromptsFile);
    for (const auto& [name, text] : all->items()) {
      if (!text.is_string()) throw user_error("{}: the prompt '{}' is not a string", kPromptsFile, name);
      out.by_name[name] = text.get<std::string>();
    }
  }
  if (const auto name = said.find("default_prompt_name"); name != said.end() && name->is_string()) {
    out.usual = name->get<std::string>();
    if (!out.by_name.contains(out.usual)) throw user_error("{}: there is no prompt '{}'", kPromptsFile, out.usual);
  }
  return out;
}

std::optional<int64_t> longest_text(const std::map<std::string, std::string>& files) {
  const auto file = files.find(kLengthFile);
  if (file == files.end()) return std::nullopt;
  const nlohmann::json said = object_of(file->second, kLengthFile);
  const auto length = said.find("max_seq_length");
  if (length == said.end() || length->is_null()) return std::nullopt;
  const int64_t number = json_integer(said, "max_seq_length", kLengthFile);
  if (number < 1) throw user_error("{}: \"max_seq_length\" is {}", kLengthFile, number);
  return number;
}

}  // namespace lumen::model::arch
