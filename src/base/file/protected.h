// Files that must not be written over, because a command reads them. They are known by device and inode, so a file is
// found behind every name it has: links, hard links, "..", another spelling. AtomicFile, AtomicFolder and move_file ask
// right before they replace a file, however long after its start that is. The table is one for the process: whoever
// writes may be another thread than whoever reads. Proved by tests/base/protected_test.cpp.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace lumen {

// Which file a path leads to.
using FileIdentity = std::pair<uint64_t, uint64_t>;  // device, inode

// While it lives the files named are protected.
class ProtectedFiles {
 public:
  ProtectedFiles() = default;
  ProtectedFiles(const ProtectedFiles&) = delete;
  ProtectedFiles& operator=(const ProtectedFiles&) = delete;
  ~ProtectedFiles();

  // A path that leads to no file is no input. Paths are remembered, too: what comes to lie there later is protected.
  void add(const std::filesystem::path& file);
  // What the user allowed to be replaced although it is read. Holds for what this object protects.
  void allow(const std::filesystem::path& file);

 private:
  std::map<FileIdentity, std::string> files_;
  std::set<std::string> paths_;  // folders without links
};

// The file that is written when `path` is named: what its symbolic links lead to, also where nothing is there yet.
std::filesystem::path written_path(const std::filesystem::path& path);

// Renames over what is there, unless it is protected.
void move_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Error (usage) that names both when `path` leads to a protected file. `hint` says what to do.
void refuse_protected(const std::filesystem::path& path, const std::string& hint = "");

}  // namespace lumen
