// Files: reading complete files, mapping, and writes that a crash never leaves half done (temporary file, fsync,
// rename).
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

// "cannot DEED 'PATH': REASON" for the number in errno, with a hint.
Error system_error(std::string_view deed, const std::filesystem::path& path);

// The complete file as bytes; Error when it is missing, unreadable or larger than `limit`.
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

// Checks a command's output path at its start: Error when no file can be created or replaced at `path`.
void require_writable(const std::filesystem::path& path);

// Opens or creates a folder and its parents; Error when that fails or the folder is not writable.
void require_writable_folder(const std::filesystem::path& path);

// Writes `path` atomically: bytes go to a hidden file in the same folder; commit() flushes, fsyncs, renames over `path`
// and fsyncs the folder. Without commit() (an exception, a full disk) the old file stays complete and the temporary is
// removed; after a kill the next writer of the same file removes it. Devices, pipes, folders and input files
// (protected.h) are refused, not replaced. A symbolic link stays: its target is written.
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
  uint64_t position_ = 0, written_ = 0;  // bytes accepted, and bytes passed to the kernel
  std::string buffer_;
};

// A new folder appears at `path` complete, by a rename in commit(), or not at all; parent folders created for it are
// removed with it. If the folder already exists, commit() moves the files into it in the order of writing, but replaces
// no links.
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
  std::filesystem::path temporary_;           // a sibling of path_, or inside it
  std::vector<std::filesystem::path> above_;  // created for it, the innermost first
  int fd_ = -1;
};

// Convenience: one AtomicFile with one write.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

}  // namespace lumen
