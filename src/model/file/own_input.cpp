#include "model/file/own_input.h"

#include <algorithm>
#include <optional>

#include "base/file/folder.h"
#include "model/file/hub/resolve.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

// "m" of "m-00002-of-00003.gguf".
std::optional<std::string> prefix_of_part(const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";  // 0 stands for a digit
  if (name.size() <= kPattern.size()) return std::nullopt;
  const std::string_view end = std::string_view(name).substr(name.size() - kPattern.size());
  for (size_t i = 0; i < end.size(); ++i) {
    const bool digit = end[i] >= '0' && end[i] <= '9';
    if (kPattern[i] == '0' ? !digit : end[i] != kPattern[i]) return std::nullopt;
  }
  return name.substr(0, name.size() - kPattern.size());
}

// Regular files of a folder (also through links), sorted; empty where there is no folder.
Paths files_in(const fs::path& folder) {
  Paths out;
  std::error_code failure;
  for (const fs::path& path : list_folder(folder.empty() ? fs::path(".") : folder, failure)) {
    std::error_code unknown;
    if (fs::is_regular_file(path, unknown)) out.push_back(path);
  }
  return out;
}

Paths without_gguf(const fs::path& folder) {
  Paths out = files_in(folder);
  std::erase_if(out, [](const fs::path& p) { return p.extension() == ".gguf"; });
  return out;
}

Paths parts_called(const fs::path& folder, const std::string& prefix) {
  Paths out = files_in(folder);
  std::erase_if(out, [&](const fs::path& p) { return prefix_of_part(p.filename().string()) != prefix; });
  return out;
}

Paths with_other_parts(const fs::path& file) {
  Paths out = {file};
  if (const auto prefix = prefix_of_part(file.filename().string())) {
    for (const fs::path& part : parts_called(file.parent_path(), *prefix)) out.push_back(part);
  }
  return out;
}

// Names of files that training commands write, in the folder of a run and in its subfolders.
constexpr std::string_view kOfRun[] = {
    "run.json",       "metrics.jsonl", "phases.json", "recipe.toml",        "journal.json", "trainer_state.json",
    "items.txt",      "usual.plan",    "ranges.json", "reference.txt",      "model.gguf",   "model-rounded.gguf",
    "model-ema.gguf", "adapter.gguf",  "base.gguf",   "adapter-plain.gguf", "merged.gguf",  "adapter_config.json"};

// In subfolders only: next to model.gguf they belong to a model that a user exported there.
bool is_of_folder(const fs::path& file) {
  constexpr std::string_view kEndings[] = {".safetensors", ".json", ".jinja", ".model", ".tiktoken"};
  return std::ranges::find(kEndings, file.extension().string()) != std::end(kEndings) ||
         file.filename() == "merges.txt";
}

bool is_of_run(const fs::path& file) {
  const std::string name = file.filename().string();
  return std::ranges::find(kOfRun, name) != std::end(kOfRun) || name.starts_with("events.out.tfevents.");
}

}  // namespace

Paths model_files(const fs::path& given) {
  const fs::path path = resolve_path(given);
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    Paths out = with_other_parts(path);
    if (path.extension() == ".json" || path.extension() == ".safetensors")
      for (const fs::path& file : without_gguf(path.parent_path())) out.push_back(file);
    return out;
  }
  if (fs::exists(path / "model.gguf", failure)) return with_other_parts(path / "model.gguf");
  return without_gguf(path);
}

Paths files_of_run(const fs::path& folder) {
  const auto is_hidden = [](const fs::path& name) { return name.string().starts_with('.'); };
  std::error_code failure;
  constexpr int kDeepestFolder = 3;  // RUN/PHASE/CHECKPOINT/FILE
  const bool has_model = fs::exists(folder / "model.gguf", failure);
  Paths out;
  for (const fs::path& path : list_below(folder, failure, kDeepestFolder)) {
    std::error_code unknown;
    const fs::path above = path.lexically_relative(folder).parent_path();  // the folders between
    if (!fs::is_regular_file(path, unknown) || std::ranges::any_of(above, is_hidden)) continue;
    if (is_of_run(path) || ((!above.empty() || !has_model) && is_of_folder(path))) out.push_back(path);
  }
  return out;
}

Paths replaced_by_gguf(const fs::path& out, bool split) {
  Paths files = {out};
  const std::string prefix = out.extension() == ".gguf" ? out.stem().string() : out.filename().string();
  if (split) {
    for (const fs::path& part : parts_called(out.parent_path(), prefix)) files.push_back(part);
  }
  return files;
}

Paths replaced_by_folder(const fs::path& out) {
  return without_gguf(out);
}

}  // namespace lumen::model::file
