#include "base/file/cut.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/round_up.h"

namespace lumen {

std::atomic<bool> some_file_was_cut{false};

// Never freed, because the signal handler may read it at any time. Entries are reused for other maps.
struct KnownMap {
  std::atomic<uintptr_t> begin{0}, end{0};  // end 0: unused
  std::atomic<bool> is_cut{false};          // zeros were read from it
  KnownMap* next = nullptr;                 // next in the list of all maps; set before insertion

  // Guarded by the lock.
  std::filesystem::path path;
  dev_t device = 0;
  ino_t inode = 0;
  bool is_watched = false, is_told = false;
};

namespace {

std::atomic<KnownMap*> all_maps{nullptr};
static_assert(std::atomic<KnownMap*>::is_always_lock_free && std::atomic<uintptr_t>::is_always_lock_free);

std::mutex& lock_of_maps() {
  static auto& lock = *new std::mutex;  // maps of static models may outlive other statics
  return lock;
}
// Truncated files that are no longer mapped and have not been reported yet.
std::vector<std::filesystem::path>& untold() {
  static auto& list = *new std::vector<std::filesystem::path>;
  return list;
}

struct sigaction action_before{};

KnownMap* map_at(uintptr_t address) {
  for (KnownMap* map = all_maps.load(); map; map = map->next)
    if (address >= map->begin.load() && address < map->end.load()) return map;
  return nullptr;
}

// Async-signal-safe: only atomics and system calls.
void on_bus_error(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  static const uintptr_t page = ::sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (KnownMap* const map = map_at(address); map && info->si_code > 0) {
    // All pages after a missing page are missing, too.
    const uintptr_t from = address / page * page, to = round_up(map->end.load(), page);
    map->is_cut = true;
    some_file_was_cut = true;
    if (::mmap(reinterpret_cast<void*>(from), to - from, PROT_READ,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED) {
      errno = saved;
      return;
    }
  }
  // Not one of our maps: forward to the previous handler.
  if ((action_before.sa_flags & SA_SIGINFO) != 0) return action_before.sa_sigaction(number, info, context);
  if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN)
    return action_before.sa_handler(number);
  ::signal(SIGBUS, SIG_DFL);                // the faulting access is then repeated
  if (info->si_code <= 0) ::raise(number);  // sent by a process
}

void catch_bus_errors() {
  struct sigaction action{};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  ::sigaction(SIGBUS, &action, &action_before);
}

// Whether the mapped file has fewer bytes now. Another file of the same name does not count.
bool is_shorter(const KnownMap& map) {
  struct stat now{};
  return ::stat(map.path.c_str(), &now) == 0 && now.st_dev == map.device && now.st_ino == map.inode &&
         uintptr_t(now.st_size) < map.end - map.begin;
}

bool was_cut(const KnownMap& map, Look look) {
  return map.is_cut || (look == Look::size && is_shorter(map));
}

Error cut_error(const std::filesystem::path& path) {
  return Error(Exit::user, fmt::format("'{}' was cut while it was read", path.string()),
               "another program wrote to it, or its disk fails; make the file whole and run the command again");
}

}  // namespace

void know_map(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const std::lock_guard guard(lock_of_maps());
  static std::once_flag once;
  std::call_once(once, catch_bus_errors);
  KnownMap* map = all_maps.load();
  while (map && map->end != 0) map = map->next;
  const bool is_new = !map;
  if (is_new) map = new KnownMap;
  map->path = path;
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    map->device = info.st_dev;
    map->inode = info.st_ino;
  }
  map->is_watched = false;
  map->is_told = false;
  map->is_cut = false;
  map->begin = reinterpret_cast<uintptr_t>(bytes.data());
  map->end = map->begin + bytes.size();
  if (is_new) {
    map->next = all_maps;
    all_maps = map;
  }
}

void forget_map(const std::byte* begin) {
  const std::lock_guard guard(lock_of_maps());
  KnownMap* const map = map_at(reinterpret_cast<uintptr_t>(begin));
  LUMEN_CHECK(map, "a map that was never known");
  if (!map->is_told && was_cut(*map, Look::size)) {
    untold().push_back(map->path);
    some_file_was_cut = true;
  }
  map->end = 0;
}

void require_whole_files(Look look) {
  const std::lock_guard guard(lock_of_maps());
  if (!untold().empty()) {
    const std::filesystem::path path = untold().front();
    untold().clear();
    throw cut_error(path);
  }
  for (KnownMap* map = all_maps; map; map = map->next) {
    if (map->end == 0 || map->is_watched || !was_cut(*map, look)) continue;
    map->is_told = true;
    throw cut_error(map->path);
  }
}

FileWatch::~FileWatch() {
  const std::lock_guard guard(lock_of_maps());
  for (KnownMap* map : maps_) map->is_watched = false;
}

void FileWatch::take_all() {
  const std::lock_guard guard(lock_of_maps());
  for (KnownMap* map = all_maps; map; map = map->next) {
    if (map->end == 0 || map->is_watched) continue;
    map->is_watched = true;
    maps_.push_back(map);
  }
}

void FileWatch::require_whole(Look look) const {
  const std::lock_guard guard(lock_of_maps());
  for (KnownMap* map : maps_) {
    if (!was_cut(*map, look)) continue;
    map->is_told = true;
    throw cut_error(map->path);
  }
}

}  // namespace lumen
