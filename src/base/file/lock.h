// One writer for each folder: a lock that the kernel releases when its holder ends, for any reason. Proved by
// tests/base/lock_test.cpp.
#pragma once

#include <filesystem>
#include <vector>

namespace lumen {

class FolderLock {
 public:
  // Creates the folder; a folder that was created here and stayed empty is removed with the lock. Error with the
  // holder's process number when another process (or another lock of this one) holds it; Error when the folder is not
  // writable.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // the innermost first
  int fd_ = -1;
};

}  // namespace lumen
