// One writer for each folder: a lock that the kernel gives back when its holder ends, however it ends. Proved by
// tests/base/lock_test.cpp.
#pragma once

#include <filesystem>
#include <vector>

namespace lumen {

class FolderLock {
 public:
  // Creates the folder; one that was created here and stayed empty goes with the lock. Error when another process (or
  // another lock of this one) holds it, with the holder's number; Error when the folder cannot be written.
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
