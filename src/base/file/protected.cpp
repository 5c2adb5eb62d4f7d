#include "base/file/protected.h"

#include <sys/stat.h>

#include <mutex>
#include <optional>

#include "base/error.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

struct Protected {
  int times = 0;  // number of objects that protect it
  std::string name;
};

struct Table {
  std::mutex lock;
  std::map<FileIdentity, Protected> files;
  std::map<std::string, int> paths;
};

// Never destroyed: threads that outlive main may still write.
Table& table() {
  static auto& one = *new Table;
  return one;
}

std::optional<FileIdentity> identity_of(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || S_ISDIR(info.st_mode)) return std::nullopt;
  return FileIdentity(info.st_dev, info.st_ino);
}

// Resolves links in the parent folder; a link itself keeps its name.
std::string place_of(const fs::path& path) {
  std::error_code failure;
  const fs::path folder = fs::weakly_canonical(path.has_parent_path() ? path.parent_path() : fs::path("."), failure);
  return failure ? path.string() : (folder / path.filename()).string();
}

// Decrements the count of objects that protect `key`.
template <class Map, class Times>
void release(Map& map, const typename Map::key_type& key, const Times& times) {
  const auto at = map.find(key);
  if (at != map.end() && --times(at->second) == 0) map.erase(at);
}

void release_file(Table& all, const FileIdentity& file) {
  release(all.files, file, [](Protected& p) -> int& { return p.times; });
}
void release_path(Table& all, const std::string& path) {
  release(all.paths, path, [](int& times) -> int& { return times; });
}

}  // namespace

void ProtectedFiles::add(const fs::path& file) {
  const auto identity = identity_of(file);
  if (!identity) return;
  Table& all = table();
  const std::lock_guard guard(all.lock);
  if (files_.emplace(*identity, file.string()).second) {
    Protected& one = all.files[*identity];
    if (one.times++ == 0) one.name = file.string();
  }
  if (const std::string path = place_of(file); paths_.insert(path).second) ++all.paths[path];
}

void ProtectedFiles::allow(const fs::path& file) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  if (const auto identity = identity_of(file); identity && files_.erase(*identity) > 0) release_file(all, *identity);
  if (const std::string path = place_of(file); paths_.erase(path) > 0) release_path(all, path);
}

ProtectedFiles::~ProtectedFiles() {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  for (const auto& [identity, name] : files_) release_file(all, identity);
  for (const std::string& path : paths_) release_path(all, path);
}

void refuse_protected(const fs::path& path, const std::string& hint) {
  Table& all = table();
  const std::lock_guard guard(all.lock);
  if (all.files.empty()) return;
  const auto identity = identity_of(path);
  if (!identity) return;
  std::string name;
  // If a file was removed meanwhile, its inode number may now belong to another file.
  if (const auto file = all.files.find(*identity);
      file != all.files.end() && identity_of(file->second.name) == identity)
    name = file->second.name;
  else if (all.paths.contains(place_of(path)))
    name = path.string();
  else
    return;
  throw Error(Exit::usage,
              name == path.string()
                  ? fmt::format("'{}' is read and would be written over", name)
                  : fmt::format("'{}' is the file '{}', which is read and would be written over", path.string(), name),
              hint.empty() ? "name another place for the output" : hint);
}

}  // namespace lumen
