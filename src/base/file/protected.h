// Files that must not be overwritten because a command reads them. They are identified by device and inode, so a file
// is found by any of its names: links, hard links, "..", another spelling. AtomicFile, AtomicFolder and move_file check
// right before they replace a file, however late that is. The process has one table, because the writing thread may not
// be the reading one. Proved by tests/base/protected_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace lumen {

// Identifies the file that a path resolves to.
using FileIdentity = std::pair<uint64_t, uint64_t>;  // device, inode

// Protects the named files during its lifetime.
class ProtectedFiles {
 public:
  ProtectedFiles() = default;
  ProtectedFiles(const ProtectedFiles&) = delete;
  ProtectedFiles& operator=(const ProtectedFiles&) = delete;
  ~ProtectedFiles();

  // A path without a file is not an input. Paths are recorded, too: a file created there later is protected.
  void add(const std::filesystem::path& file);
  // A file that the user allowed to be replaced although it is read. Applies to this object's protection only.
  void allow(const std::filesystem::path& file);

 private:
  std::map<FileIdentity, std::string> files_;
  std::set<std::string> paths_;  // with links in the folder resolved
};

// The file that a write to `path` changes: the target of its symbolic links, even if it does not exist yet.
std::filesystem::path written_path(const std::filesystem::path& path);

// Renames `from` over `to`, unless `to` is protected.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Error (usage) that names both files when `path` resolves to a protected file. `hint` is shown to the user.
void refuse_protected(const std::filesystem::path& path, const std::string& hint = "");

}  // namespace lumen
