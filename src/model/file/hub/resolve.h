// Finds models on this machine by name. Nothing is downloaded. Proved by tests/model/file/hub/resolve_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/file/hub/cache.h"

namespace lumen::model::file {

// Names that the user has configured.
struct LocalNames {
  std::map<std::string, std::string> aliases;  // of models: a name of the hub or a path
  std::vector<std::filesystem::path> folders;  // whose GGUF files and model folders are found by their names
};
// For the whole process. The command line sets it before it starts a command.
void set_local_names(LocalNames names);
const LocalNames& local_names();

// "user/repo[:PART][@REVISION]" or "user/repo/FILE.gguf[@REVISION]": the folder of its snapshot, or the GGUF file that
// PART selects (choose_gguf). When it is missing, an Error with the searched folder and how to get the model.
std::filesystem::path resolve_hub(const std::string& name);

// The path for "hf:user/repo", an alias, "user/repo[:PART]" or "repo[:PART]" of the cache, or a name in one of the
// configured folders; nullopt for other texts. Existing files have priority over names without "hf:". Error when
// several repositories have the short name.
std::optional<std::filesystem::path> resolve_name(const std::string& text);

// The same, with other texts unchanged.
std::filesystem::path resolve_path(const std::filesystem::path& path);

}  // namespace lumen::model::file
