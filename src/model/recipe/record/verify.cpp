#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/adapter/adapter.h"
#include "model/arch/checkpoint/read.h"
#include "model/file/own_input.h"
#include "model/recipe/record/keys.h"
#include "model/recipe/record/lora_base.h"
#include "model/recipe/record/provenance.h"
#include "run/engine/stages.h"

namespace lumen::model::recipe {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Record = std::map<std::string, std::string>;
using Found = VerifyLine::Found;

// Compares a recorded file with the current one.
VerifyLine compare_file(const std::string& what, const fs::path& path, uint64_t bytes, const std::string& hash) {
  VerifyLine line;
  line.what = fmt::format("{} '{}'", what, path.string());
  std::error_code failure;
  if (!fs::is_regular_file(path, failure)) {
    line.found = Found::missing;
    line.detail = "not there";
    return line;
  }
  const data::DataFile now = recorded::file_of(path);
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

// Paths of input files of the run that wrote `by`: its run.json lists them.
std::vector<std::string> places_around(const fs::path& by) {
  std::vector<std::string> out;
  const fs::path folder = by.parent_path();
  for (const fs::path& run : {folder / kRunFile, folder.parent_path() / kRunFile}) {
    std::error_code failure;
    if (run == by || !fs::is_regular_file(run, failure)) continue;
    const json all = parse_json(read_file(run, recorded::kLargestRecord), run.string());
    for (const char* key : {recorded::kBase, recorded::kTeacher})
      if (all.is_object() && all.contains(key) && all[key].is_string()) out.push_back(all[key].get<std::string>());
    if (!all.is_object() || !all.contains(recorded::kFiles) || !all[recorded::kFiles].is_string()) continue;
    const json files = parse_json(all[recorded::kFiles].get<std::string>(), run.string());
    if (!files.is_array()) continue;
    for (const json& f : files)
      if (f.is_object() && f.contains("path") && f["path"].is_string()) out.push_back(f["path"].get<std::string>());
  }
  return out;
}

// Finds files that are recorded by path, or by name only: then at the run's paths, next to the file with the record, or
// in the working directory.
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
  std::optional<std::vector<std::string>> around_;  // read on first use
};

// Compares a model by the hash of its weights.
VerifyLine compare_model(const arch::LibraryRef& library, const char* what, const std::string& recorded,
                         const std::string& hash, Places& places) {
  VerifyLine line;
  line.what = fmt::format("{} '{}'", what, recorded);
  std::error_code failure;
  const std::string place = places.of(recorded);
  const file::Paths files = file::model_files(place);
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

std::vector<VerifyLine> compare_all(const arch::LibraryRef& library, const Record& record, const std::string& file) {
  const auto p = provenance_of(record, file);
  if (!p)
    throw Error(Exit::user, fmt::format("{}: it has no record of its origin", file),
                "`lumen train` and `lumen merge` record it in what they write");
  std::vector<VerifyLine> lines;
  Places places{file};
  if (!p->base.empty()) lines.push_back(compare_model(library, "base", p->base, p->base_hash, places));
  if (!p->teacher.empty()) lines.push_back(compare_model(library, "teacher", p->teacher, p->teacher_hash, places));
  for (const data::DataFile& f : p->files) {
    if (f.path.empty()) continue;  // the built-in text is part of the program
    lines.push_back(compare_file("file", places.of(f.path), f.bytes, f.hash.hex()));
  }
  if (!p->recipe.empty())
    lines.push_back(
        compare_text("recipe", hash_text(p->recipe).hex(), recorded::text_of(record, recorded::kRecipeHash)));
  for (const auto& [name, hash] : p->formats) {
    const FormatRef format = library->formats().find(name);
    if (format) {
      lines.push_back(compare_text(fmt::format("format '{}'", name), format->hash.hex(), hash));
      continue;
    }
    lines.push_back({Found::missing, fmt::format("format '{}'", name), "unknown; name its folder with --formats"});
  }
  lines.push_back(compare_text("compiler", run::compiler_version(), p->compiler));
  return lines;
}

// Compares the files that a run.json lists.
std::vector<VerifyLine> compare_outputs(const fs::path& folder) {
  const json all = parse_json(read_file(folder / kRunFile, recorded::kLargestRecord), (folder / kRunFile).string());
  std::vector<VerifyLine> lines;
  const std::string where = (folder / kRunFile).string();
  for (const json& one : json_member(all, recorded::kOutputs, where)) {
    lines.push_back(compare_file("output", folder / json_text(one, "path", where), recorded::size_of(one, where),
                                 json_text(one, "hash", where)));
  }
  return lines;
}

}  // namespace

std::vector<VerifyLine> verify(const arch::LibraryRef& library, const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) throw user_error("{}: no such file or folder", path.string());
  const FormatLibrary& formats = library->formats();
  if (!fs::is_directory(path, failure)) return compare_all(library, read_record(path, formats), path.string());
  for (const char* name : {kRunFile, arch::kAdapterWeights, kFolderFiles[0].c_str(), kModelFile}) {
    if (!fs::exists(path / name, failure)) continue;
    std::vector<VerifyLine> lines = compare_all(library, read_record(path / name, formats), (path / name).string());
    if (std::string_view(name) == kRunFile)
      for (VerifyLine& line : compare_outputs(path)) lines.push_back(std::move(line));
    return lines;
  }
  throw Error(Exit::user, fmt::format("{}: no {}, and no file of a model or an adapter", path.string(), kRunFile),
              "name the folder of a run, or one of its files");
}

}  // namespace lumen::model::recipe
