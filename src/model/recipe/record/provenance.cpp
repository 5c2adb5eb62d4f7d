#include "model/recipe/record/provenance.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/structured/json.h"
#include "model/file/gguf.h"
#include "model/file/safetensors.h"
#include "model/recipe/record/keys.h"

namespace lumen::model::recipe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Record = std::map<std::string, std::string>;

// Files below a folder, or the file itself; relative to `root`, sorted.
std::vector<fs::path> files_below(const fs::path& root, const std::string& name) {
  std::vector<fs::path> out;
  std::error_code failure;
  if (!fs::is_directory(root / name, failure)) {
    if (fs::exists(root / name, failure)) out.emplace_back(name);
    return out;
  }
  for (const fs::path& path : list_below(root / name))
    if (fs::is_regular_file(path)) out.push_back(fs::relative(path, root));
  std::sort(out.begin(), out.end());
  return out;
}

json json_of(const data::DataFile& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"hash", file.hash.hex()}};
}

// With paths of this machine.
Record whole_record(const Provenance& from) {
  Record out;
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  put(recorded::kBase, from.base);
  put(recorded::kBaseHash, from.base_hash);
  put(recorded::kTeacher, from.teacher);
  put(recorded::kTeacherHash, from.teacher_hash);
  json files = json::array();
  for (const data::DataFile& f : from.files) files.push_back(json_of(f));
  put(recorded::kFiles, json_print(files, recorded::kFiles));
  put(recorded::kTokens, from.tokens);
  put(recorded::kRecipe, from.recipe);
  if (!from.recipe.empty()) put(recorded::kRecipeHash, hash_text(from.recipe).hex());
  put(recorded::kFormats, json_print(json(from.formats), recorded::kFormats));
  put(recorded::kCompiler, from.compiler);
  return out;
}

}  // namespace

Hash hash_of(const std::string& hex, const std::string& where) {
  Hash hash;
  const char* begin = hex.data();
  const bool whole = hex.size() == 32 && std::from_chars(begin, begin + 16, hash.high, 16).ptr == begin + 16 &&
                     std::from_chars(begin + 16, begin + 32, hash.low, 16).ptr == begin + 32;
  if (!whole || hash.hex() != hex) throw user_error("{}: '{}' is no content hash", where, hex);
  return hash;
}

uint64_t recorded::size_of(const json& file, const std::string& where) {
  const int64_t bytes = json_integer(file, "bytes", where);
  if (bytes < 0) throw user_error("{}: a file of {} bytes", where, bytes);
  return static_cast<uint64_t>(bytes);
}

std::map<std::string, std::string> formats_of(const arch::Model& model) {
  std::map<std::string, std::string> out;
  for (const auto& [name, w] : model.weights)
    if (const FormatRef& f = w.type.element.format) out[f->name] = f->hash.hex();
  return out;
}

Record record_of(const Provenance& from) {
  Provenance names = from;
  const auto name_of = [](const std::string& place) {
    return place.starts_with("hf:") ? place : fs::path(place).filename().string();
  };
  names.base = name_of(from.base);
  names.teacher = name_of(from.teacher);
  for (data::DataFile& f : names.files) f.path = name_of(f.path);
  return whole_record(names);
}

std::optional<Provenance> provenance_of(const Record& record, const std::string& file) {
  if (!record.contains(recorded::kCompiler)) return std::nullopt;
  Provenance p;
  p.base = recorded::text_of(record, recorded::kBase);
  p.base_hash = recorded::text_of(record, recorded::kBaseHash);
  p.teacher = recorded::text_of(record, recorded::kTeacher);
  p.teacher_hash = recorded::text_of(record, recorded::kTeacherHash);
  p.tokens = recorded::text_of(record, recorded::kTokens);
  p.recipe = recorded::text_of(record, recorded::kRecipe);
  p.compiler = recorded::text_of(record, recorded::kCompiler);
  const auto parsed = [&](const char* key, json::value_t type) {
    const std::string text = recorded::text_of(record, key);
    json value = text.empty() ? json(type) : parse_json(text, file + ": " + key);
    if (value.type() != type) throw user_error("{}: {} is malformed", file, key);
    return value;
  };
  for (const json& one : parsed(recorded::kFiles, json::value_t::array)) {
    const std::string where = file + ": " + recorded::kFiles;
    data::DataFile f;
    f.path = json_text(one, "path", where);
    f.bytes = recorded::size_of(one, where);
    f.hash = hash_of(json_text(one, "hash", where), where);
    p.files.push_back(std::move(f));
  }
  const json formats = parsed(recorded::kFormats, json::value_t::object);
  for (const auto& [name, hash] : formats.items()) {
    if (!hash.is_string()) throw user_error("{}: {} is malformed", file, recorded::kFormats);
    p.formats[name] = hash.get<std::string>();
  }
  return p;
}

Record read_record(const fs::path& file, const FormatLibrary& formats) {
  Record out;
  if (file.filename() == kRunFile) {
    const json all = parse_json(read_file(file, recorded::kLargestRecord), file.string());
    for (const char* key : recorded::kAll)
      if (all.is_object() && all.contains(key) && all[key].is_string()) out[key] = all[key].get<std::string>();
    return out;
  }
  if (file.extension() == ".safetensors") {
    const file::SafetensorsFile tensors(file, formats);
    for (const char* key : recorded::kAll)
      if (const auto found = tensors.metadata().find(key); found != tensors.metadata().end()) out[key] = found->second;
    return out;
  }
  const MappedFile map(file);
  const file::GgufMetadata metadata = file::read_gguf_metadata(map.bytes(), file.string());
  for (const char* key : recorded::kAll)
    if (metadata.has(key)) out[key] = metadata.text(key);
  return out;
}

void set_record(file::GgufMetadata& metadata, const Record& record) {
  for (const char* key : recorded::kAll) metadata.erase(key);
  for (const auto& [key, text] : record) metadata.set(key, text);
}

void write_run_file(const fs::path& folder, const Provenance& from, const std::vector<std::string>& files) {
  json all = json::object();
  for (const auto& [key, text] : whole_record(from)) all[key] = text;
  json outputs = json::array();
  for (const std::string& name : files) {
    for (const fs::path& path : files_below(folder, name)) {
      data::DataFile f = recorded::file_of(folder / path);
      f.path = path.generic_string();
      outputs.push_back(json_of(f));
    }
  }
  all[recorded::kOutputs] = outputs;
  write_file_atomic(folder / kRunFile, json_print(all, kRunFile, 2) + "\n");
}

}  // namespace lumen::model::recipe
