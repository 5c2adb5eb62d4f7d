// Mapped files that another process cuts. A page behind the new end cannot be read: the system sends SIGBUS, which
// would end the program without a word. Such pages become zeros instead, and that is remembered, so that whoever goes
// on with what was read asks here first, and no answer and no file comes of zeros. A file that is written over in
// place, with as many bytes or more, is not noticed. Proved by tests/base/cut_test.cpp and
// tests/cli/system/cut_check.py.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace lumen {

// A map that SIGBUS knows; MappedFile alone makes them.
struct KnownMap;
void know_map(std::span<const std::byte> map, const std::filesystem::path& path);
void forget_map(const std::byte* begin);  // before it goes; that it was cut is still told

enum class Look : unsigned char {
  touched,  // whether zeros were read
  size,     // or might have been: a file that ends inside a page ends in zeros, too. Asks the system about each map.
};

// Error naming the file, where one that is mapped, or was since the last Error, was cut. Files of a FileWatch are left
// to it. Called before anything is printed or renamed into place.
void require_whole_files(Look look);

// The same for the steps of long work, where nothing is wrong at the price of one load.
extern std::atomic<bool> some_file_was_cut;
inline void require_untouched_pages() {
  if (some_file_was_cut.load(std::memory_order_relaxed)) [[unlikely]]
    require_whole_files(Look::touched);
}

// The files of one of several works, as the models of a server: where one is cut, the others go on.
class FileWatch {
 public:
  FileWatch() = default;
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;
  ~FileWatch();

  void take_all();                      // that are mapped now and that no other watch has; they outlive this
  void require_whole(Look look) const;  // Error, each time

 private:
  std::vector<KnownMap*> maps_;
};

}  // namespace lumen
