#include "model/file/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"

namespace lumen::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "hf:";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Whether the text is a plain name, from which no other path can be built.
bool is_name(std::string_view text) {
  return !text.empty() && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
         });
}

// The snapshot that refs/main names, or the only one.
fs::path snapshot_of(const fs::path& repository) {
  std::error_code failure;
  const fs::path main = repository / "refs" / "main";
  if (fs::is_regular_file(main, failure)) {
    std::string commit = read_file(main, 1024);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) commit.pop_back();
    if (is_name(commit) && fs::is_directory(repository / "snapshots" / commit, failure))
      return repository / "snapshots" / commit;
  }
  const std::vector<fs::path> all = list_folder(repository / "snapshots", failure);
  return all.size() == 1 ? all[0] : fs::path();
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

fs::path resolve_hub(const std::string& name) {
  const size_t colon = name.find(':');
  const std::string repository = name.substr(0, colon), part = colon == std::string::npos ? "" : name.substr(colon + 1);
  const size_t slash = repository.find('/');
  const std::string user = repository.substr(0, slash),
                    repo = slash == std::string::npos ? "" : repository.substr(slash + 1);
  if (!is_name(user) || !is_name(repo))
    throw usage_error("'{}' is no name of a repository; they are called USER/REPO", name);
  const fs::path cache = hub_cache(), folder = cache / fmt::format("models--{}--{}", user, repo);
  const fs::path snapshot = snapshot_of(folder);
  if (snapshot.empty()) {
    throw Error(
        Exit::user, fmt::format("'{}' is not in the local cache {}", repository, cache.string()),
        fmt::format(
            "Lumen does not download; get it with `hf download {}`, or point HF_HUB_CACHE or HF_HOME at a cache "
            "that has it",
            repository));
  }
  std::error_code failure;
  if (part.empty() && fs::exists(snapshot / "config.json", failure) &&
      (fs::exists(snapshot / "model.safetensors", failure) ||
       fs::exists(snapshot / "model.safetensors.index.json", failure)))
    return snapshot;
  std::vector<fs::path> found;
  std::string names;
  for (const fs::path& file : list_folder(snapshot, failure)) {
    const std::string file_name = file.filename().string();
    if (file.extension() != ".gguf") continue;
    names += (names.empty() ? "" : ", ") + file_name;
    // The first file of a split model represents all.
    const size_t of = file_name.rfind("-of-");
    const bool later = of != std::string::npos && of >= 5 && file_name.substr(of - 5, 5) != "00001";
    if (!later && lower(file_name).find(lower(part)) != std::string::npos) found.push_back(file);
  }
  if (found.size() == 1) return found[0];
  throw Error(Exit::user,
              names.empty() ? fmt::format("{} holds neither safetensors nor GGUF files", snapshot.string())
                            : fmt::format("{} of the files of '{}' {} '{}': {}", found.size(), repository,
                                          found.size() == 1 ? "has" : "have", part, names),
              fmt::format("name one of them: {}:PART, where PART is in its name", repository));
}

fs::path resolve_path(const fs::path& path) {
  const std::string text = path.string();
  return text.starts_with(kPrefix) ? resolve_hub(text.substr(kPrefix.size())) : path;
}

}  // namespace lumen::model
