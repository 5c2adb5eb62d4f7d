// What a folder of sentence-transformers says besides the model: the modules that follow it (pooling, dense layers,
// normalization), and the prompts that are placed before texts. Dense layers become parameters of the family
// (a part of the language that encoders extend): their tensors are "dense.0.linear.weight" and so on here, and their
// keys are members of the object "dense" of config.json. Proved by tests/model/arch/modules_test.cpp.
//
// May include: base, base/file, base/structured, model/file, number/library.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/file/tensors.h"
#include "number/library/library.h"

namespace lumen::model::arch {

inline constexpr const char* kModulesFile = "modules.json";
inline constexpr const char* kPromptsFile = "config_sentence_transformers.json";
inline constexpr const char* kLengthFile = "sentence_bert_config.json";  // the longest text
inline constexpr const char* kDense = "dense";                           // member of config.json, and prefix of tensors

struct SentenceModules {
  std::string pooling;               // the folder of its config.json; empty: there is none
  std::vector<std::string> dense;    // folders of their config.json and model.safetensors, in order
  std::vector<std::string> unknown;  // types of modules that are none of these
  bool normalizes = false;           // ends with vectors of length 1
  std::vector<std::string> folders() const;
};

// The text of modules.json; `where` names it in errors.
SentenceModules read_modules(const std::string& text, const std::string& where);
// nullopt if the folder has no such file.
std::optional<SentenceModules> modules_of(const std::filesystem::path& folder);

// Adds the dense layers of a folder to its config and tensors. Error if one lacks its files.
void add_dense(const std::filesystem::path& folder, const SentenceModules& modules, const FormatLibrary& formats,
               nlohmann::json& config, std::shared_ptr<const file::TensorFile>& tensors);

// Completes the small files of a folder that is written: the dense layers' configs, and modules.json where it lacks
// them. `dense`: the member of config.json. Returns the layers' folders.
std::vector<std::string> put_dense(const nlohmann::json& dense, std::map<std::string, std::string>& files);

struct Prompts {
  std::map<std::string, std::string> by_name;
  std::string usual;  // the name of the prompt that is used unless another one is asked for; empty: none
};
// The prompts in the small files of a folder, by name (Model::files).
Prompts prompts_of(const std::map<std::string, std::string>& files);
// The most tokens of a text, by the same files.
std::optional<int64_t> longest_text(const std::map<std::string, std::string>& files);

}  // namespace lumen::model::arch
