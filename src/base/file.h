// Files: reading whole, mapping, and writing so that a crash never leaves half a file (write beside, fsync, rename).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lumen {

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

// Writes `path` atomically: bytes go to a hidden file beside it; commit() flushes, fsyncs, renames over `path` and fsyncs
// the folder. Without commit() (an exception, a full disk, a kill) the old file stays whole and the temporary is removed.
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

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  uint64_t position_ = 0;
  std::string buffer_;
};

// Convenience: one AtomicFile with one write.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

}  // namespace lumen
