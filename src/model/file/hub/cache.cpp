#include "model/file/hub/cache.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLeastDigits = 7, kShownDigits = 12;  // of a commit
constexpr int kDeepest = 8;                            // folders in a snapshot
constexpr std::string_view kFolderPrefix = "models--";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The commit in a reference; empty where there is none.
std::string referenced(const fs::path& repository, const std::string& revision) {
  const fs::path file = repository / "refs" / revision;
  std::error_code failure;
  if (!fs::is_regular_file(file, failure) || fs::file_size(file, failure) > 1024) return {};
  std::string commit = read_file(file, 1024);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
  return is_plain_name(commit) && fs::is_directory(repository / "snapshots" / commit, failure) ? commit : "";
}

std::vector<std::string> commits_of(const fs::path& repository) {
  std::vector<std::string> out;
  std::error_code failure;
  for (const fs::path& path : list_folder(repository / "snapshots", failure)) out.push_back(path.filename().string());
  return out;
}

// USER and REPO of "models--USER--REPO"; nullopt for other names.
std::optional<HubName> name_of_folder(const std::string& folder) {
  if (!folder.starts_with(kFolderPrefix)) return std::nullopt;
  const size_t cut = folder.find("--", kFolderPrefix.size());
  if (cut == std::string::npos) return std::nullopt;
  HubName out;
  out.user = folder.substr(kFolderPrefix.size(), cut - kFolderPrefix.size());
  out.repo = folder.substr(cut + 2);
  if (!is_plain_name(out.user) || !is_plain_name(out.repo)) return std::nullopt;
  return out;
}

void measure(CachedModel* model) {
  for (const std::string& file : model->files) {
    std::error_code failure;
    const uintmax_t bytes = fs::file_size(model->snapshot / file, failure);
    if (!failure) model->bytes += bytes;
    const fs::file_time_type time = fs::last_write_time(model->snapshot / file, failure);
    if (!failure) model->modified = std::max(model->modified, time);
  }
}

void add_models_of_snapshot(const HubName& name, const fs::path& snapshot, std::vector<CachedModel>* out) {
  const FileNames files = snapshot_files(snapshot);
  const auto add = [&](CachedModel model) {
    measure(&model);
    out->push_back(std::move(model));
  };
  std::set<std::string> labels;
  for (const GgufSet& set : gguf_sets(files)) {
    CachedModel model{name, set.type(), snapshot, set.files, 0, fs::file_time_type::min(), set.is_whole()};
    if (is_plain_name(set.label) && labels.insert(set.label).second)
      model.name.part = set.label;
    else
      model.name.file = set.files[0];
    add(std::move(model));
  }
  if (FileNames folder = safetensors_files(files); !folder.empty())
    add({name, "safetensors", snapshot, std::move(folder), 0, fs::file_time_type::min(), true});
}

}  // namespace

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string folder = variable(name); !folder.empty()) return folder;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface" / "hub";
  const std::string home = variable("HOME");
  return fs::path(home.empty() ? "." : home) / ".cache" / "huggingface" / "hub";
}

std::string cached_commit(const fs::path& repository, const std::string& revision) {
  if (const std::string commit = referenced(repository, revision); !commit.empty()) return commit;
  const std::vector<std::string> all = commits_of(repository);
  if (revision == kMainRevision) return all.size() == 1 ? all[0] : "";
  std::vector<std::string> fitting;
  for (const std::string& commit : all)
    if (commit == revision || (revision.size() >= kLeastDigits && commit.starts_with(revision)))
      fitting.push_back(commit);
  return fitting.size() == 1 ? fitting[0] : "";
}

FileNames snapshot_files(const fs::path& snapshot) {
  FileNames out;
  std::error_code failure;
  for (const fs::path& path : list_below(snapshot, failure, kDeepest)) {
    std::error_code missing;
    if (fs::is_regular_file(path, missing)) out.push_back(path.lexically_relative(snapshot).string());
  }
  return out;
}

std::vector<CachedModel> cached_models(const fs::path& cache) {
  std::vector<CachedModel> out;
  std::error_code failure;
  for (const fs::path& repository : list_folder(cache, failure)) {
    std::optional<HubName> name = name_of_folder(repository.filename().string());
    if (!name) continue;
    const std::string main = cached_commit(repository, std::string(kMainRevision));
    for (const std::string& commit : commits_of(repository)) {
      if (!is_plain_name(commit)) continue;
      name->revision = commit == main ? std::string(kMainRevision) : commit.substr(0, kShownDigits);
      add_models_of_snapshot(*name, repository / "snapshots" / commit, &out);
    }
  }
  return out;
}

}  // namespace lumen::model::file
