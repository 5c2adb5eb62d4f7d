#include "base/file/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/file/cut.h"
#include "base/file/leave.h"
#include "base/file/temporary.h"
#include "base/printable.h"
#include "base/round_up.h"

namespace lumen {

namespace {

// The hint for a file that reached its size limit.
std::string file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "its file system takes no larger files; choose another folder";
  return fmt::format("files of this process may have {} (`ulimit -f`); raise the limit and run the command again",
                     size_text(limit.rlim_cur));
}

// A path as shown to the user: temporary files and folders have their final names.
std::filesystem::path as_wanted(const std::filesystem::path& path) {
  std::filesystem::path out;
  for (const std::filesystem::path& part : path) {
    const std::string wanted = temporary_becomes(part.native());
    out /= wanted.empty() ? part : std::filesystem::path(wanted);
  }
  return out;
}

}  // namespace

Error system_error(std::string_view deed, const std::filesystem::path& path) {
  const int number = errno;
  std::string hint;
  if (number == ENOSPC) hint = "the disk is full; free some space and run the command again";
  if (number == EDQUOT) hint = "the disk quota of this user is used up; free some space and run the command again";
  if (number == EFBIG) hint = file_limit();
  if (number == EACCES || number == EPERM) hint = "check the permissions of the file and its folder";
  return Error(Exit::user, fmt::format("cannot {} '{}': {}", deed, as_wanted(path).string(), std::strerror(number)),
               hint);
}

namespace {

// All maps: address and size in bytes. Never destroyed, because maps of static models may outlive other statics.
std::map<const std::byte*, size_t>& maps() {
  static auto& all = *new std::map<const std::byte*, size_t>;
  return all;
}
std::mutex& maps_lock() {
  static auto& lock = *new std::mutex;
  return lock;
}

// The map that contains all of `range`, or end(); the caller holds maps_lock().
std::map<const std::byte*, size_t>::iterator map_of(std::span<const uint8_t> range) {
  const auto* const begin = reinterpret_cast<const std::byte*>(range.data());
  auto map = maps().upper_bound(begin);
  if (range.empty() || map == maps().begin()) return maps().end();
  --map;
  return begin + range.size() <= map->first + map->second ? map : maps().end();
}

// Opens a regular file for reading and returns its size.
int open_regular(const std::filesystem::path& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw system_error("open", path);
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw user_error("cannot read '{}': not a regular file", path.string());
  }
  *size = info.st_size;
  return fd;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  uint64_t size = 0;
  const int fd = open_regular(path, &size);
  if (size > limit) {
    ::close(fd);
    throw user_error("'{}' has {} bytes; at most {} are accepted here", path.string(), size, limit);
  }
  std::string out(size, '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::read(fd, out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      ::close(fd);
      throw system_error("read", path);
    }
    if (n == 0) break;
    done += n;
  }
  // Files in /sys have fewer bytes than their size; other files were truncated during the read.
  struct stat now{};
  const bool was_cut = done < size && ::fstat(fd, &now) == 0 && uint64_t(now.st_size) < size;
  ::close(fd);
  if (was_cut) throw user_error("'{}' was cut while it was read", path.string());
  out.resize(done);
  return out;
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  uint64_t size = 0;
  const int fd = open_regular(path, &size);
  size_ = size;
  if (size_ > 0) {
    void* p = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      ::close(fd);
      throw system_error("map", path);
    }
    data_ = static_cast<const std::byte*>(p);
    know_map(bytes(), path);
    const std::lock_guard guard(maps_lock());
    maps()[data_] = size_;
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!data_) return;
  {
    const std::lock_guard guard(maps_lock());
    maps().erase(data_);
  }
  forget_map(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

bool is_in_file(std::span<const uint8_t> range) {
  const std::lock_guard guard(maps_lock());
  return map_of(range) != maps().end();
}

void bring_from_file(std::span<const uint8_t> range) {
  if (!is_in_file(range)) return;
  static const size_t page = ::sysconf(_SC_PAGESIZE);
  const size_t before = reinterpret_cast<uintptr_t>(range.data()) % page;
  // Other maps are not locked meanwhile. A kernel without this request loads pages on access.
  ::madvise(const_cast<uint8_t*>(range.data()) - before, before + range.size(), MADV_POPULATE_READ);
}

void leave_to_file(std::span<const uint8_t> range) {
  const auto* const begin = reinterpret_cast<const std::byte*>(range.data());
  const std::lock_guard guard(maps_lock());
  const auto map = map_of(range);
  if (map == maps().end()) return;
  // A page fault may map neighbouring pages, too (fault-around): drop them as well.
  constexpr size_t kTogether = 2 << 20;
  const size_t at = begin - map->first, first = at / kTogether * kTogether;
  const size_t last = std::min(map->second, round_up(at + range.size(), kTogether));
  ::madvise(const_cast<std::byte*>(map->first) + first, last - first, MADV_DONTNEED);
}

}  // namespace lumen
