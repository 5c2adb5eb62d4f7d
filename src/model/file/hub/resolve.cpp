#include "model/file/hub/resolve.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file/folder.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

LocalNames configured;

// "user/repo" for each repository of the cache with this name, or this name without its user.
std::set<std::string> repositories_called(const std::string& name) {
  std::set<std::string> out;
  std::error_code failure;
  for (const fs::path& folder : list_folder(hub_cache(), failure)) {
    const std::string text = folder.filename().string();
    const size_t user = std::string_view("models--").size(), cut = text.find("--", user);
    if (!text.starts_with("models--") || cut == std::string::npos) continue;
    const std::string repo = text.substr(cut + 2), full = text.substr(user, cut - user) + "/" + repo;
    if (in_lower_case(full) == in_lower_case(name) || in_lower_case(repo) == in_lower_case(name)) out.insert(full);
  }
  return out;
}

std::optional<fs::path> find_in_folders(const std::string& name) {
  for (const fs::path& folder : configured.folders)
    for (const std::string& file : {name, name + ".gguf"}) {
      std::error_code failure;
      if (is_repository_path(file) && fs::exists(folder / file, failure)) return folder / file;
    }
  return std::nullopt;
}

// "user/repo[:PART][@REVISION]" or the same without the user, of the cache.
std::optional<fs::path> find_in_cache(const std::string& text) {
  const std::string repository = text.substr(0, text.find_first_of(":@"));
  if (!is_repository_path(repository) || repository.starts_with('.')) return std::nullopt;
  const std::set<std::string> found = repositories_called(repository);
  if (found.size() == 1) return resolve_hub(*found.begin() + text.substr(repository.size()));
  if (found.empty()) return std::nullopt;
  std::string names;
  for (const std::string& one : found) names += (names.empty() ? "" : ", ") + one;
  throw Error(Exit::user, fmt::format("several models are called '{}': {}", repository, names),
              fmt::format("name one of them, as in hf:{}", *found.begin()));
}

}  // namespace

void set_local_names(LocalNames names) {
  configured = std::move(names);
}
const LocalNames& local_names() {
  return configured;
}

fs::path resolve_hub(const std::string& text) {
  const HubName name = parse_hub_name(text);
  const fs::path cache = hub_cache(), repository = cache / name.folder();
  const std::string commit = cached_commit(repository, name.revision);
  if (commit.empty()) {
    const std::string which = name.revision == kMainRevision ? "" : fmt::format(" at '{}'", name.revision);
    throw Error(Exit::user,
                fmt::format("'{}'{} is not in the local cache {}", name.repository(), which, cache.string()),
                fmt::format("`lumen pull {}` downloads it; HF_HUB_CACHE or HF_HOME names another cache", name.text()));
  }
  const fs::path snapshot = repository / "snapshots" / commit;
  const FileNames files = snapshot_files(snapshot);
  if (name.part.empty() && name.file.empty() && !safetensors_files(files).empty()) return snapshot;
  const std::vector<GgufSet> sets = gguf_sets(files);
  if (sets.empty())
    throw Error(Exit::user, fmt::format("{} holds neither safetensors nor GGUF files", snapshot.string()),
                fmt::format("`lumen pull {}` downloads a model", name.text()));
  try {
    return snapshot / choose_gguf(sets, name).files[0];
  } catch (const Error& missing) {
    throw Error(missing.code(), fmt::format("in the local cache {}", missing.what()),
                fmt::format("{}; `lumen pull {}` downloads what is missing", missing.hint(), name.text()));
  }
}

std::optional<fs::path> resolve_name(const std::string& text) {
  if (text.starts_with(kHubPrefix)) return resolve_hub(text);
  std::error_code failure;
  if (text.empty() || fs::exists(text, failure)) return std::nullopt;
  if (const auto alias = configured.aliases.find(text); alias != configured.aliases.end()) {
    if (alias->second.starts_with(kHubPrefix)) return resolve_hub(alias->second);
    return alias->second;
  }
  if (auto file = find_in_folders(text)) return file;
  return find_in_cache(text);
}

fs::path resolve_path(const fs::path& path) {
  return resolve_name(path.string()).value_or(path);
}

}  // namespace lumen::model::file
