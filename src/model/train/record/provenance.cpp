#include "model/train/record/provenance.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/adapter/adapter.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/gguf.h"
#include "model/file/own_input.h"
#include "model/file/safetensors.h"
#include "model/train/record/lora_base.h"
#include "model/train/record/record.h"
#include "run/engine/stages.h"

namespace lumen::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBase = "lumen.run.base";
constexpr const char* kBaseHash = "lumen.run.base_hash";
constexpr const char* kTeacher = "lumen.run.teacher";
constexpr const char* kTeacherHash = "lumen.run.teacher_hash";
constexpr const char* kFiles = "lumen.run.files";
constexpr const char* kTokens = "lumen.run.tokens";
constexpr const char* kRecipe = "lumen.run.recipe";
constexpr const char* kRecipeHash = "lumen.run.recipe_hash";
constexpr const char* kFormats = "lumen.run.formats";
constexpr const char* kCompiler = "lumen.run.compiler";
constexpr const char* kAll[] = {kBase,   kBaseHash, kTeacher,    kTeacherHash, kFiles,
                                kTokens, kRecipe,   kRecipeHash, kFormats,     kCompiler};
constexpr const char* kOutputs = "outputs";  // of run.json: files by content
constexpr uint64_t kLargestRecord = uint64_t{64} << 20;

using Record = std::map<std::string, std::string>;
using Found = VerifyLine::Found;

std::string text_of(const Record& record, const char* key) {
  const auto found = record.find(key);
  return found == record.end() ? "" : found->second;
}

DataFile file_of(const fs::path& path) {
  const MappedFile map(path);
  return {path.string(), map.bytes().size(), hash_bytes(map.bytes().data(), map.bytes().size())};
}

// Files below a folder, or the file itself; relative to `root`, sorted.
std::vector<fs::path> files_below(const fs::path& root, const std::string& name) {
  std::vector<fs::path> out;
  std::error_code failure;
  if (!fs::is_directory(root / name, failure)) {
    if (fs::exists(root / name, failure)) out.emplace_back(name);
    return out;
  }
  for (const auto& entry : fs::recursive_directory_iterator(root / name))
    if (entry.is_regular_file()) out.push_back(fs::relative(entry.path(), root));
  std::sort(out.begin(), out.end());
  return out;
}

json json_of(const DataFile& file) {
  return {{"path", file.path}, {"bytes", file.bytes}, {"hash", file.hash.hex()}};
}

// A file that was recorded, as it is now.
VerifyLine compare_file(const std::string& what, const fs::path& path, uint64_t bytes, const std::string& hash) {
  VerifyLine line;
  line.what = fmt::format("{} '{}'", what, path.string());
  std::error_code failure;
  if (!fs::is_regular_file(path, failure)) {
    line.found = Found::missing;
    line.detail = "not there";
    return line;
  }
  const DataFile now = file_of(path);
  if (now.bytes == bytes && now.hash.hex() == hash) return line;
  line.found = Found::differs;
  line.detail = fmt::format("{} bytes, hash {}; recorded: {} bytes, hash {}", now.bytes, now.hash.hex(), bytes, hash);
  return line;
}

VerifyLine compare_text(const std::string& what, const std::string& now, const std::string& was) {
  VerifyLine line;
  line.what = what;
  if (now == was) return line;
  line.found = Found::differs;
  line.detail = fmt::format("{}; recorded: {}", now, was);
  return line;
}

// Places of files that the run around `by` was made of: its run.json names them.
std::vector<std::string> places_around(const fs::path& by) {
  std::vector<std::string> out;
  const fs::path folder = by.parent_path();
  for (const fs::path& run : {folder / kRunFile, folder.parent_path() / kRunFile}) {
    std::error_code failure;
    if (run == by || !fs::is_regular_file(run, failure)) continue;
    const json all = parse_json(read_file(run, kLargestRecord), run.string());
    for (const char* key : {kBase, kTeacher})
      if (all.is_object() && all.contains(key) && all[key].is_string()) out.push_back(all[key].get<std::string>());
    if (!all.is_object() || !all.contains(kFiles) || !all[kFiles].is_string()) continue;
    const json files = parse_json(all[kFiles].get<std::string>(), run.string());
    if (!files.is_array()) continue;
    for (const json& f : files)
      if (f.is_object() && f.contains("path") && f["path"].is_string()) out.push_back(f["path"].get<std::string>());
  }
  return out;
}

// Where files lie that are recorded by their places, or by their names alone: then where the run found them, beside the
// file that records them, or here.
class Places {
 public:
  explicit Places(fs::path by) : by_(std::move(by)) {}

  std::string of(const std::string& recorded) {
    std::error_code failure;
    if (recorded.starts_with("hf:") || fs::path(recorded).has_parent_path()) return recorded;
    if (!around_) around_ = places_around(by_);
    for (const std::string& place : *around_)
      if (fs::path(place).filename() == recorded && fs::exists(place, failure)) return place;
    const fs::path beside = by_.parent_path() / recorded;
    return fs::exists(beside, failure) ? beside.string() : recorded;
  }

 private:
  fs::path by_;
  std::optional<std::vector<std::string>> around_;  // read once, when the first is asked for
};

// A model by its weights.
VerifyLine compare_model(const LibraryRef& library, const char* what, const std::string& recorded,
                         const std::string& hash, Places& places) {
  VerifyLine line;
  line.what = fmt::format("{} '{}'", what, recorded);
  std::error_code failure;
  const std::string place = places.of(recorded);
  const Paths files = model_files(place);
  if (files.empty() || !fs::exists(files.front(), failure)) {
    line.found = Found::missing;
    line.detail = "not there";
    return line;
  }
  const std::string now = weights_hash(read_model(library, place)).hex();
  if (now != hash) {
    line.found = Found::differs;
    line.detail = fmt::format("weights {}; recorded: {}", now, hash);
  }
  return line;
}

std::vector<VerifyLine> compare_all(const LibraryRef& library, const Record& record, const std::string& file) {
  const auto p = provenance_of(record, file);
  if (!p)
    throw Error(Exit::user, fmt::format("{}: nothing is recorded of where it comes from", file),
                "`lumen train` and `lumen merge` record it in what they write");
  std::vector<VerifyLine> lines;
  Places places{file};
  if (!p->base.empty()) lines.push_back(compare_model(library, "base", p->base, p->base_hash, places));
  if (!p->teacher.empty()) lines.push_back(compare_model(library, "teacher", p->teacher, p->teacher_hash, places));
  for (const DataFile& f : p->files) {
    if (f.path.empty()) continue;  // the text that comes with the program is part of it
    lines.push_back(compare_file("file", places.of(f.path), f.bytes, f.hash.hex()));
  }
  if (!p->recipe.empty())
    lines.push_back(compare_text("recipe", hash_text(p->recipe).hex(), text_of(record, kRecipeHash)));
  for (const auto& [name, hash] : p->formats) {
    const FormatRef format = library->formats().find(name);
    if (format) {
      lines.push_back(compare_text(fmt::format("format '{}'", name), format->hash.hex(), hash));
      continue;
    }
    lines.push_back({Found::missing, fmt::format("format '{}'", name), "not known; name its folder with --formats"});
  }
  lines.push_back(compare_text("compiler", run::compiler_version(), p->compiler));
  return lines;
}

// The files a run.json lists.
std::vector<VerifyLine> compare_outputs(const fs::path& folder) {
  const json all = parse_json(read_file(folder / kRunFile, kLargestRecord), (folder / kRunFile).string());
  std::vector<VerifyLine> lines;
  const std::string where = (folder / kRunFile).string();
  for (const json& one : json_member(all, kOutputs, where)) {
    const int64_t bytes = json_integer(one, "bytes", where);
    lines.push_back(compare_file("output", folder / json_text(one, "path", where), static_cast<uint64_t>(bytes),
                                 json_text(one, "hash", where)));
  }
  return lines;
}

// With places of this machine.
Record whole_record(const Provenance& from) {
  Record out;
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  put(kBase, from.base);
  put(kBaseHash, from.base_hash);
  put(kTeacher, from.teacher);
  put(kTeacherHash, from.teacher_hash);
  json files = json::array();
  for (const DataFile& f : from.files) files.push_back(json_of(f));
  put(kFiles, json_print(files, kFiles));
  put(kTokens, from.tokens);
  put(kRecipe, from.recipe);
  if (!from.recipe.empty()) put(kRecipeHash, hash_text(from.recipe).hex());
  put(kFormats, json_print(json(from.formats), kFormats));
  put(kCompiler, from.compiler);
  return out;
}

}  // namespace

std::map<std::string, std::string> formats_of(const Model& model) {
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
  for (DataFile& f : names.files) f.path = name_of(f.path);
  return whole_record(names);
}

std::optional<Provenance> provenance_of(const Record& record, const std::string& file) {
  if (!record.contains(kCompiler)) return std::nullopt;
  Provenance p;
  p.base = text_of(record, kBase);
  p.base_hash = text_of(record, kBaseHash);
  p.teacher = text_of(record, kTeacher);
  p.teacher_hash = text_of(record, kTeacherHash);
  p.tokens = text_of(record, kTokens);
  p.recipe = text_of(record, kRecipe);
  p.compiler = text_of(record, kCompiler);
  const auto parsed = [&](const char* key, json::value_t type) {
    const std::string text = text_of(record, key);
    json value = text.empty() ? json(type) : parse_json(text, file + ": " + key);
    if (value.type() != type) throw user_error("{}: {} is malformed", file, key);
    return value;
  };
  for (const json& one : parsed(kFiles, json::value_t::array)) {
    const std::string where = file + ": " + kFiles;
    DataFile f;
    f.path = json_text(one, "path", where);
    f.bytes = static_cast<uint64_t>(json_integer(one, "bytes", where));
    f.hash = hash_of(json_text(one, "hash", where), where);
    p.files.push_back(std::move(f));
  }
  const json formats = parsed(kFormats, json::value_t::object);
  for (const auto& [name, hash] : formats.items()) {
    if (!hash.is_string()) throw user_error("{}: {} is malformed", file, kFormats);
    p.formats[name] = hash.get<std::string>();
  }
  return p;
}

Record read_record(const fs::path& file, const FormatLibrary& formats) {
  Record out;
  if (file.filename() == kRunFile) {
    const json all = parse_json(read_file(file, kLargestRecord), file.string());
    for (const char* key : kAll)
      if (all.is_object() && all.contains(key) && all[key].is_string()) out[key] = all[key].get<std::string>();
    return out;
  }
  if (file.extension() == ".safetensors") {
    const SafetensorsFile tensors(file, formats);
    for (const char* key : kAll)
      if (const auto found = tensors.metadata().find(key); found != tensors.metadata().end()) out[key] = found->second;
    return out;
  }
  const MappedFile map(file);
  const GgufMetadata metadata = read_gguf_metadata(map.bytes(), file.string());
  for (const char* key : kAll)
    if (metadata.has(key)) out[key] = metadata.text(key);
  return out;
}

void set_record(GgufMetadata& metadata, const Record& record) {
  for (const char* key : kAll) metadata.erase(key);
  for (const auto& [key, text] : record) metadata.set(key, text);
}

void write_run_file(const fs::path& folder, const Provenance& from, const std::vector<std::string>& files) {
  json all = json::object();
  for (const auto& [key, text] : whole_record(from)) all[key] = text;
  json outputs = json::array();
  for (const std::string& name : files) {
    for (const fs::path& path : files_below(folder, name)) {
      DataFile f = file_of(folder / path);
      f.path = path.generic_string();
      outputs.push_back(json_of(f));
    }
  }
  all[kOutputs] = outputs;
  write_file_atomic(folder / kRunFile, json_print(all, kRunFile, 2) + "\n");
}

std::vector<VerifyLine> verify(const LibraryRef& library, const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) throw user_error("{}: no such file or folder", path.string());
  const FormatLibrary& formats = library->formats();
  if (!fs::is_directory(path, failure)) return compare_all(library, read_record(path, formats), path.string());
  for (const char* name : {kRunFile, kAdapterWeights, kFolderFiles[0].c_str(), kModelFile}) {
    if (!fs::exists(path / name, failure)) continue;
    std::vector<VerifyLine> lines = compare_all(library, read_record(path / name, formats), (path / name).string());
    if (std::string_view(name) == kRunFile)
      for (VerifyLine& line : compare_outputs(path)) lines.push_back(std::move(line));
    return lines;
  }
  throw Error(Exit::user, fmt::format("{}: no {}, and no file of a model or an adapter", path.string(), kRunFile),
              "name the folder of a run, or one of its files");
}

}  // namespace lumen::model
