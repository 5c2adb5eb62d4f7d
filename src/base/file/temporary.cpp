#include "base/file/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/ending.h"
#include "base/file/folder.h"

namespace lumen {
namespace {

constexpr int kSlots = 64;
std::atomic<char*> slots[kSlots];
std::mutex names_mutex;  // for threads that add or remove names; signal handlers only exchange
static_assert(std::atomic<char*>::is_always_lock_free, "signal handlers read the table");

std::atomic<int> moving{0};
constexpr int kDeepest = 4;  // nesting of folders inside a folder being written

// A thread may still be creating what it registered before.
constexpr int kTries = 200;
constexpr timespec kBetweenTries{0, 5'000'000};

// Async-signal-safe: the library's functions for this allocate memory. False when something remains.
bool remove_folder(int above, const char* name, int depth) noexcept {
  struct Entry {  // the kernel's layout (getdents64)
    uint64_t inode;
    int64_t next;
    unsigned short bytes;
    unsigned char type;
    char name[1];
  };
  const int fd = ::openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  alignas(Entry) char some[4096];
  for (;;) {
    const long bytes = ::syscall(SYS_getdents64, fd, some, sizeof some);
    if (bytes <= 0) break;
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const Entry*>(some + at);
      at += entry->bytes;
      const char* const n = entry->name;
      if (n[0] == '.' && (n[1] == 0 || (n[1] == '.' && n[2] == 0))) continue;
      if (::unlinkat(fd, n, 0) != 0 && errno == EISDIR && depth > 0) (void)remove_folder(fd, n, depth - 1);
    }
  }
  ::close(fd);
  return ::unlinkat(above, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

}  // namespace

std::string temporary_becomes(std::string_view name) {
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return {};
  name = name.substr(1, name.size() - 1 - kEnd.size());
  for (int part = 0; part < 2; ++part) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos || !is_number(name.substr(dot + 1))) return {};
    name = name.substr(0, dot);
  }
  return std::string(name);
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void remember_temporary(const std::filesystem::path& path) {
  wait_if_ending();
  const std::lock_guard guard(names_mutex);
  char* name = ::strdup(path.c_str());
  for (int i = 0; i < kSlots && name; ++i) {
    char* expected = nullptr;
    if (slots[i].compare_exchange_strong(expected, name)) return;
  }
  std::free(name);
}

void forget_temporary(const std::filesystem::path& path) {
  const std::lock_guard guard(names_mutex);
  for (std::atomic<char*>& slot : slots) {
    char* name = slot.load();  // only threads that hold the mutex free names
    if (!name || path != name || !slot.compare_exchange_strong(name, nullptr)) continue;
    std::free(name);
    return;
  }
}

void remove_temporaries() noexcept {
  begin_ending();
  // A name taken here is never freed: its owner may be interrupted at any point.
  const char* names[kSlots];
  int count = 0;
  for (std::atomic<char*>& slot : slots)
    if (const char* const name = slot.exchange(nullptr)) names[count++] = name;
  for (const bool is_last : {false, true}) {
    for (int i = 0; i < count; ++i) {
      if (::unlink(names[i]) == 0 || errno != EISDIR) continue;
      for (int t = 0; t < kTries && !remove_folder(AT_FDCWD, names[i], kDeepest); ++t)
        ::nanosleep(&kBetweenTries, nullptr);
    }
    if (count > 0 && !is_last) ::nanosleep(&kBetweenTries, nullptr);
  }
}

FilesMoving::FilesMoving() noexcept {
  ++moving;
}
FilesMoving::~FilesMoving() {
  --moving;
}
bool are_files_moving() noexcept {
  return moving > 0;
}

bool lock_new(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat info{};
  return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

void remove_leavings(const std::filesystem::path& folder, const std::function<bool(const std::string&)>& wanted) {
  std::error_code failure;
  for (const std::filesystem::path& one : list_folder(folder, failure)) {
    const std::string meant = temporary_becomes(one.filename().string());
    if (meant.empty() || (wanted && !wanted(meant))) continue;
    const int fd = ::open(one.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) remove_tree(one, failure);
    ::close(fd);
  }
}

}  // namespace lumen
