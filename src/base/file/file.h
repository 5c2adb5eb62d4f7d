// Files: reading whole, mapping, and writing so that a crash never leaves half a file (write beside, fsync, rename).
//
// May include: base.
// Offers: cut.h, folder.h, leave.h, lock.h, protected.h, temporary.h, transfer.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lumen {

// "cannot DEED 'PATH': REASON" for the number in errno, with what to do.
Error system_error(std::string_view deed, const std::filesystem::path& path);

// Whole file as bytes; Error when missing, unreadable or larger than `limit`.
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t{1} << 32);

// A read-only memory map. Empty files are legal and have an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// What a command will write at its end is tried at its start: Error when `path` cannot be made or replaced by a file.
void require_writable(const std::filesystem::path& path);

// A folder that is there, or a new one with those above it; Error when it cannot be had, or nothing can be written to
// it.
void require_writable_folder(const std::filesystem::path& path);

// Writes `path` atomically: bytes go to a hidden file beside it; commit() flushes, fsyncs, renames over `path` and
// fsyncs the folder. Without commit() (an exception, a full disk, a kill) the old file stays whole and the temporary is
// removed: what a kill leaves, by the next one that writes the same file. Refused, not replaced, are devices, pipes,
// folders and files that are read (protected.h). A symbolic link stays: what it leads to is written.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void pad_to(uint64_t alignment);  // writes zero bytes until the position is a multiple
  uint64_t position() const { return position_; }
  void commit();

 private:
  void flush();
  void write_out(const char* data, size_t size);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  uint64_t position_ = 0, written_ = 0;  // bytes given, and given to the system
  std::string buffer_;
};

// A new folder appears at `path` whole, by a rename in commit(), or not at all; folders above it that had to be made go
// with it. Into a folder that is there already commit() moves the files, as they were written, but over no links.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  const std::filesystem::path& path() const { return temporary_; }  // where to write
  void commit();

 private:
  void undo();

  std::filesystem::path path_;
  std::filesystem::path temporary_;           // beside it, or within
  std::vector<std::filesystem::path> above_;  // made for it, the innermost first
  int fd_ = -1;
};

// Convenience: one AtomicFile with one write.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

}  // namespace lumen
