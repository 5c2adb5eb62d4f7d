// Mapped files that another process truncates. A page after the new end cannot be read: the kernel sends SIGBUS, which
// would kill the program without a message. The handler replaces such pages by zeros and records it. Code that uses the
// data calls this file's checks first, so no answer or file is made of zeros. A file overwritten in place with at least
// as many bytes is not noticed. Proved by tests/base/cut_test.cpp and tests/cli/system/cut_check.py.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lumen {

// A map registered with the SIGBUS handler; only MappedFile creates them.
struct KnownMap;
void know_map(std::span<const std::byte> map, const std::filesystem::path& path);
void forget_map(const std::byte* begin);  // before munmap; a truncation is still reported afterwards

enum class Look : unsigned char {
  touched,  // whether zeros were read
  size,     // or could have been: a file that ends inside a page is followed by zeros. One stat() for each map.
};

// Error naming the file if a file that is mapped, or was mapped since the last Error, was truncated. Files of a
// FileWatch are excluded. Called before output is printed or renamed into place.
void require_whole_files(Look look);

// The same check for the steps of long work; it costs one load when no file was truncated.
extern std::atomic<bool> some_file_was_cut;
inline void require_untouched_pages() {
  if (some_file_was_cut.load(std::memory_order_relaxed)) [[unlikely]]
    require_whole_files(Look::touched);
}

// The files of one of several independent jobs, such as the models of a server: a truncated file fails only its own
// job.
class FileWatch {
 public:
  FileWatch() = default;
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch();

  void take_all();                      // all files mapped now without another watch; they must outlive this
  void require_whole(Look look) const;  // throws at every call

 private:
  std::vector<KnownMap*> maps_;
};

}  // namespace lumen
