// See kept_files.h. Everything is reached from the descriptor of the user's folder, never by a path again, so nobody
// can put another folder in its place between a check and a use; no symbolic link below it is followed.
#include "run/engine/cache/kept_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace lumen::run {
namespace {

constexpr char kMagic[8] = {'L', 'U', 'M', 'E', 'N', 'K', '0', '2'};
constexpr const char* kKeyName = "key";
constexpr off_t kLargestFile = off_t{64} << 20;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO, kOthersWrite = S_IWGRP | S_IWOTH;
constexpr time_t kAbandoned = 3600;  // seconds after which an unfinished file belongs to nobody

struct Header {
  char magic[8];
  uint64_t size;    // of the content
  emit::Seal seal;  // of kind, name and content
};
static_assert(sizeof(Header) == 48);

std::filesystem::path environment_path(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string unfinished_name(const std::string& name) {
  static std::atomic<int> counter{0};
  return fmt::format(".{}.{}.{}.part", name, ::getpid(), counter.fetch_add(1));
}

bool write_all(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= n;
  }
  return true;
}

bool read_all(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= n;
  }
  return true;
}

// A lock on a folder by its descriptor, held until the end of the scope. Without locks on this file system there is
// nothing to wait for: two first starts at once may then make two secrets, and one of them compiles again.
class FolderTurn {
 public:
  explicit FolderTurn(int folder) : folder_(folder) {
    for (int i = 0; i < kMostTries && (locked_ = ::flock(folder_, LOCK_EX | LOCK_NB)) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      std::this_thread::sleep_for(kPause);
    }
    came_ = locked_ == 0;
  }
  FolderTurn(const FolderTurn&) = delete;
  FolderTurn& operator=(const FolderTurn&) = delete;
  ~FolderTurn() {
    if (locked_ == 0) ::flock(folder_, LOCK_UN);
  }
  bool came() const { return came_; }

 private:
  static constexpr int kMostTries = 2000;
  static constexpr std::chrono::milliseconds kPause{5};
  int folder_, locked_ = -1;
  bool came_ = true;
};

}  // namespace

std::filesystem::path cache_folder(const std::string& option) {
  std::filesystem::path folder = option;
  if (folder.empty()) folder = environment_path("LUMEN_CACHE");
  if (folder == "off") return {};
  if (!folder.empty()) return folder;
  if (const auto xdg = environment_path("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "lumen";
  if (const auto home = environment_path("HOME"); home.is_absolute()) return home / ".cache" / "lumen";
  return {};
}

bool is_cache_off(const std::string& option) {
  return option == "off" || (option.empty() && environment_path("LUMEN_CACHE") == "off");
}

class KeptFiles::Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

KeptFiles::KeptFiles(const std::filesystem::path& folder, bool quiet) : quiet_(quiet) {
  if (folder.empty()) return;
  path_ = folder / fmt::format("user-{}", ::geteuid());
  usable_ = open_own(folder);
}

KeptFiles::~KeptFiles() {
  for (const auto& [kind, fd] : kinds_) ::close(fd);
  if (own_ >= 0) ::close(own_);
}

bool KeptFiles::usable() const {
  const std::scoped_lock lock(mutex_);
  return usable_ && writable_;
}

const std::string& KeptFiles::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

// mutex_ is held, or nobody else knows this object yet.
void KeptFiles::give_up(const std::string& why) {
  if (!trouble_.empty()) return;
  usable_ = false;
  trouble_ = why;
  if (!quiet_) warn(fmt::format("compiled kernels are not kept, every start compiles them again: {}", why));
}

void KeptFiles::give_up_errno(const std::string& deed) {
  give_up(fmt::format("cannot {} '{}': {}", deed, path_.string(), std::strerror(errno)));
}

bool KeptFiles::open_own(const std::filesystem::path& folder) {
  std::error_code wrong;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), wrong);
  // What cannot be made here is found out by what follows, with a better reason.
  (void)::mkdir(folder.c_str(), S_IRWXU);
  (void)::mkdir(path_.c_str(), S_IRWXU);
  Descriptor own(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (own.get() < 0) {
    give_up_errno("open");
    return false;
  }
  // One at a time: who comes second finds the folder closed and the secret there. Until it is closed, somebody else
  // could hold the lock for ever.
  const FolderTurn turn(own.get());
  if (!turn.came()) {
    give_up(fmt::format("another process keeps '{}' locked", path_.string()));
    return false;
  }
  struct stat info{};
  if (::fstat(own.get(), &info) != 0) {
    give_up_errno("look at");
    return false;
  }
  if (info.st_uid != ::geteuid()) {
    give_up(fmt::format("'{}' belongs to another user (number {}); remove it, or name another folder with --cache",
                        path_.string(), info.st_uid));
    return false;
  }
  // Others could have exchanged the secret, too: a new one takes the trust from all that lies here.
  const bool open_to_others = (info.st_mode & kOthersWrite) != 0;
  if ((info.st_mode & kOthers) != 0 && ::fchmod(own.get(), S_IRWXU) != 0 && open_to_others) {
    give_up_errno("close to others");
    return false;
  }
  own_ = own.take();
  if (open_to_others)
    verbose(fmt::format("others could write to '{}': what lies there is compiled again", path_.string()));
  return open_key(open_to_others);
}

bool KeptFiles::open_key(bool fresh) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (!fresh) {
      const Descriptor file(::openat(own_, kKeyName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
      struct stat info{};
      if (file.get() >= 0 && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
          (info.st_mode & kOthers) == 0 && info.st_size == std::ssize(key_) &&
          read_all(file.get(), key_.data(), key_.size()))
        return true;
      if (file.get() < 0 && errno != ENOENT && errno != ELOOP) {
        give_up_errno("read the secret of");
        return false;
      }
    }
    // There is none, or none that could be trusted. Nobody else makes one meanwhile: it is this process's turn.
    fresh = false;
    if (::unlinkat(own_, kKeyName, 0) != 0 && errno != ENOENT) {
      give_up_errno("replace the secret of");
      return false;
    }
    if (!make_key()) return false;
  }
  give_up(fmt::format("the secret of '{}' changes all the time", path_.string()));
  return false;
}

// Appears whole, even after a crash: none, or all of it.
bool KeptFiles::make_key() {
  emit::SealKey key{};
  size_t have = 0;
  while (have < key.size()) {
    const ssize_t n = ::getrandom(key.data() + have, key.size() - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      give_up_errno("draw a secret for");
      return false;
    }
    have += n;
  }
  const std::string part = unfinished_name(kKeyName);
  const Descriptor file(
      ::openat(own_, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  bool made = file.get() >= 0 && write_all(file.get(), key.data(), key.size()) && ::fsync(file.get()) == 0;
  if (made && ::linkat(own_, part.c_str(), own_, kKeyName, 0) != 0) made = errno == EEXIST;
  const int number = errno;
  ::unlinkat(own_, part.c_str(), 0);
  errno = number;
  if (!made) give_up_errno("write to");
  return made;
}

int KeptFiles::folder_of(const std::string& kind, bool make) {
  const std::scoped_lock lock(mutex_);
  if (!usable_ || (make && !writable_)) return -1;
  if (const auto found = kinds_.find(kind); found != kinds_.end()) return found->second;
  if (make) (void)::mkdirat(own_, kind.c_str(), S_IRWXU);
  Descriptor folder(::openat(own_, kind.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (folder.get() < 0 && errno == ENOENT && !make) return -1;  // nothing was kept yet
  if (folder.get() < 0 || ::fstat(folder.get(), &info) != 0) {
    give_up_errno("write to");
    return -1;
  }
  if (info.st_uid != ::geteuid()) {
    give_up(fmt::format("'{}' belongs to another user", (path_ / kind).string()));
    return -1;
  }
  // Unfinished files of processes that were killed.
  if (const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); again >= 0) {
    if (DIR* list = ::fdopendir(again)) {
      while (const dirent* entry = ::readdir(list)) {
        const std::string_view name = entry->d_name;
        struct stat one{};
        if (name.starts_with('.') && name.ends_with(".part") &&
            ::fstatat(folder.get(), entry->d_name, &one, AT_SYMLINK_NOFOLLOW) == 0 &&
            one.st_mtime + kAbandoned < std::time(nullptr))
          ::unlinkat(folder.get(), entry->d_name, 0);
      }
      ::closedir(list);
    } else {
      ::close(again);
    }
  }
  return kinds_[kind] = folder.take();
}

std::string KeptFiles::read(const std::string& kind, const std::string& name) {
  const int folder = folder_of(kind, false);
  if (folder < 0) return {};
  const Descriptor file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return {};
  const auto refuse = [&](const char* why) {
    verbose(fmt::format("'{}' {}; it is made again", (path_ / kind / name).string(), why));
    return std::string();
  };
  if (!S_ISREG(info.st_mode)) return refuse("is not a file");
  if (info.st_uid != ::geteuid() && info.st_uid != 0) return refuse("belongs to another user");
  if ((info.st_mode & kOthersWrite) != 0) return refuse("could have been written by others");
  if (info.st_size < static_cast<off_t>(sizeof(Header)) || info.st_size > kLargestFile) return refuse("is damaged");
  Header header{};
  std::string content(info.st_size - sizeof(Header), '\0');
  if (!read_all(file.get(), &header, sizeof header) || !read_all(file.get(), content.data(), content.size()))
    return refuse("cannot be read whole");
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.size != content.size() ||
      !emit::same_seal(header.seal, emit::seal(key_, {kind, name, content})))
    return refuse("is damaged, or was not made by this user's Lumen");
  return content;
}

void KeptFiles::write(const std::string& kind, const std::string& name, const std::string& content, bool is_flushed) {
  LUMEN_CHECK(!content.empty() && name.find('/') == std::string::npos);
  const int folder = folder_of(kind, true);
  if (folder < 0) return;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.size = content.size();
  header.seal = emit::seal(key_, {kind, name, content});
  const std::string part = unfinished_name(name);
  Descriptor file(
      ::openat(folder, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  bool whole = file.get() >= 0 && write_all(file.get(), &header, sizeof header) &&
               write_all(file.get(), content.data(), content.size());
  if (whole && is_flushed) whole = ::fsync(file.get()) == 0;
  if (const int fd = file.take(); fd >= 0 && ::close(fd) != 0) whole = false;
  if (whole && ::renameat(folder, part.c_str(), folder, name.c_str()) == 0) {
    if (is_flushed) (void)::fsync(folder);  // some file systems cannot; the file is there all the same
    return;
  }
  const int number = errno;
  ::unlinkat(folder, part.c_str(), 0);
  errno = number;
  const std::scoped_lock lock(mutex_);
  if (std::exchange(writable_, false)) give_up_errno("write to");
  usable_ = true;  // for reading
}

}  // namespace lumen::run
