// Keys of a provenance record, in metadata of files and in run.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/file/file.h"
#include "base/hash.h"
#include "model/data/examples/dataset.h"

namespace lumen::model::recipe::recorded {

inline constexpr const char* kBase = "lumen.run.base";
inline constexpr const char* kBaseHash = "lumen.run.base_hash";
inline constexpr const char* kTeacher = "lumen.run.teacher";
inline constexpr const char* kTeacherHash = "lumen.run.teacher_hash";
inline constexpr const char* kFiles = "lumen.run.files";
inline constexpr const char* kTokens = "lumen.run.tokens";
inline constexpr const char* kRecipe = "lumen.run.recipe";
inline constexpr const char* kRecipeHash = "lumen.run.recipe_hash";
inline constexpr const char* kFormats = "lumen.run.formats";
inline constexpr const char* kCompiler = "lumen.run.compiler";
inline constexpr const char* kAll[] = {kBase,   kBaseHash, kTeacher,    kTeacherHash, kFiles,
                                       kTokens, kRecipe,   kRecipeHash, kFormats,     kCompiler};
inline constexpr const char* kOutputs = "outputs";  // of run.json: files with their hashes
inline constexpr uint64_t kLargestRecord = uint64_t{64} << 20;

// "" for a missing key.
inline std::string text_of(const std::map<std::string, std::string>& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() ? "" : found->second;
}

// A recorded file size. Error for an impossible one.
uint64_t size_of(const nlohmann::json& file, const std::string& where);

// Path, size and hash of the current file.
inline data::DataFile file_of(const std::filesystem::path& path) {
  const MappedFile map(path);
  return {path.string(), map.bytes().size(), hash_bytes(map.bytes().data(), map.bytes().size())};
}

}  // namespace lumen::model::recipe::recorded
