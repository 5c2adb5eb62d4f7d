// See sealed.h. Every access starts at the descriptor of the user's folder, never at a path, so no one can replace the
// folder between a check and a use; no symbolic link below it is followed.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <set>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/temporary.h"
#include "base/file/transfer.h"
#include "base/log.h"
#include "base/sealed/sealed.h"
#include "base/sealed/trailer.h"

namespace lumen {
namespace {

constexpr const char* kKeyName = "key";
constexpr off_t kLargestRead = off_t{64} << 20;  // limit of a read into memory
constexpr mode_t kOthers = S_IRWXG | S_IRWXO, kOthersWrite = S_IWGRP | S_IWOTH;
constexpr time_t kFresh = 600;  // seconds in which another use does not update the time

// A lock on a folder by its descriptor, held until the end of the scope. On file systems without locks nothing is
// locked: two first starts at once may then create two secrets, and one of them compiles again.
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

// Folders that a warning was printed for: one for each process, however many objects use the folder.
bool is_first_warning(const std::filesystem::path& folder) {
  static std::mutex mutex;
  static auto& told = *new std::set<std::filesystem::path>;
  const std::lock_guard guard(mutex);
  return told.insert(folder).second;
}

}  // namespace

class SealedFolder::Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.take()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int take() { return std::exchange(fd_, -1); }
  void reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

SealedFolder::SealedFolder(const std::filesystem::path& folder, SealedFolderOptions options)
    : options_(std::move(options)) {
  if (folder.empty()) {
    if (!options_.nowhere.empty()) give_up(options_.nowhere);
    return;
  }
  path_ = folder / fmt::format("user-{}", ::geteuid());
  usable_ = open_own(folder);
}

SealedFolder::~SealedFolder() {
  for (const auto& [kind, fd] : kinds_) ::close(fd);
  if (own_ >= 0) ::close(own_);
}

bool SealedFolder::usable() const {
  const std::scoped_lock lock(mutex_);
  return usable_ && writable_;
}

const std::string& SealedFolder::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_;
}

// The caller holds mutex_, or is the constructor.
void SealedFolder::give_up(const std::string& why) {
  if (!trouble_.empty()) return;
  usable_ = false;
  trouble_ = why;
  if (!options_.quiet && is_first_warning(path_)) warn(fmt::format("{}: {}", options_.lost, why));
}

void SealedFolder::give_up_writing(const std::string& why) {
  const std::scoped_lock lock(mutex_);
  if (std::exchange(writable_, false)) give_up(why);
  usable_ = own_ >= 0;  // for reading
}

void SealedFolder::give_up_errno(const std::string& deed) {
  give_up(fmt::format("cannot {} '{}': {}", deed, path_.string(), std::strerror(errno)));
}

bool SealedFolder::open_own(const std::filesystem::path& folder) {
  std::error_code wrong;
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), wrong);
  // Failures here are detected by the following calls, with a better reason.
  (void)::mkdir(folder.c_str(), S_IRWXU);
  (void)::mkdir(path_.c_str(), S_IRWXU);
  Descriptor own(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (own.get() < 0) {
    give_up_errno("open");
    return false;
  }
  // One process at a time: the second finds the folder closed to others and the secret in it. Until the folder is
  // closed, another user could hold the lock for ever.
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
  // Other users could have replaced the secret, too: a new one invalidates all existing files.
  const bool open_to_others = (info.st_mode & kOthersWrite) != 0;
  if ((info.st_mode & kOthers) != 0 && ::fchmod(own.get(), S_IRWXU) != 0 && open_to_others) {
    give_up_errno("close to others");
    return false;
  }
  own_ = own.take();
  if (open_to_others) {
    has_refused_ = true;  // replaces the warning for each file
    const std::string told = fmt::format(
        "other users could write to '{}': their permission was removed, and nothing in it "
        "is taken",
        path_.string());
    options_.quiet ? verbose(told) : warn(told);
  }
  return open_key(open_to_others);
}

bool SealedFolder::open_key(bool fresh) {
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
    // There is no secret, or no trusted one. This process holds the lock, so no other one creates a secret now.
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

// Appears complete or not at all, even after a crash.
bool SealedFolder::make_key() {
  SealKey key{};
  if (!move_all(key.size(), [&](size_t done, size_t left) { return ::getrandom(key.data() + done, left, 0); })) {
    give_up_errno("draw a secret for");
    return false;
  }
  is_new_ = has_refused_ = true;
  const std::string part = unfinished_name(kKeyName);
  remember_temporary(path_ / part);  // a signal removes it
  const Descriptor file(
      ::openat(own_, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  bool made = file.get() >= 0 && write_all(file.get(), key.data(), key.size()) && ::fsync(file.get()) == 0;
  if (made && ::linkat(own_, part.c_str(), own_, kKeyName, 0) != 0) made = errno == EEXIST;
  const int number = errno;
  ::unlinkat(own_, part.c_str(), 0);
  forget_temporary(path_ / part);
  errno = number;
  if (!made) give_up_errno("write to");
  return made;
}

int SealedFolder::folder_of(const std::string& kind, bool make) {
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
  // Removes unfinished files of ended processes through the descriptor, so no other user can redirect the path.
  remove_leavings(fmt::format("/proc/self/fd/{}", folder.get()));
  return kinds_[kind] = folder.take();
}

// An open candidate file with its trailer; `why`: the reason of a refusal.
struct SealedFolder::Found {
  SealedContents::State state = SealedContents::State::absent;
  std::string why;
  Descriptor file{-1};
  Trailer trailer{};
  uint64_t size = 0;  // of the contents
};

SealedFolder::Found SealedFolder::find(const std::string& kind, const std::string& name) {
  const int folder = folder_of(kind, false);
  Found out;
  if (folder < 0) return out;
  const int fd = ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  const int number = errno;
  if (fd < 0 && number == ENOENT) return out;
  out.file.reset(fd);
  out.state = SealedContents::State::refused;
  struct stat info{};
  if (fd < 0 || ::fstat(fd, &info) != 0) {
    out.why = number == ELOOP ? "is a link" : fmt::format("cannot be opened ({})", std::strerror(number));
  } else if (!S_ISREG(info.st_mode)) {
    out.why = "is not a file";
  } else if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    out.why = "belongs to another user";
  } else if ((info.st_mode & kOthersWrite) != 0) {
    out.why = "could have been written by others";
  } else if (info.st_size < ssize_t{sizeof(Trailer)}) {
    out.why = "is damaged";
  } else {
    out.size = info.st_size - sizeof(Trailer);
    if (::pread(fd, &out.trailer, sizeof out.trailer, off_t(out.size)) != ssize_t{sizeof(Trailer)})
      out.why = "cannot be read whole";
    else if (!out.trailer.is_known())
      out.why = "was not made by this version of Lumen, or is damaged";
    else if (out.trailer.size != out.size)
      out.why = "is damaged";
  }
  if (!out.why.empty()) return out;
  out.state = SealedContents::State::whole;
  // Use times have a resolution of ten minutes; files whose time cannot be set keep the old one.
  if (options_.most_bytes > 0 && info.st_mtime + kFresh < std::time(nullptr)) (void)::futimens(fd, nullptr);
  return out;
}

bool SealedFolder::is_sealed(const Found& found, const std::string& kind, const std::string& name,
                             std::span<const uint8_t> contents) const {
  ContentSeal made(key_, sealed_name(kind, name, found.trailer.salt_text()));
  made.add(contents.data(), contents.size());
  return same_seal(made.finish(), found.trailer.seal);
}

void SealedFolder::refuse(const std::string& kind, const std::string& name, const std::string& why) {
  const std::string told = fmt::format("'{}' {}; it is made again", (path_ / kind / name).string(), why);
  const std::scoped_lock lock(mutex_);
  options_.quiet || std::exchange(has_refused_, true) ? verbose(told) : warn(told);
}

std::string SealedFolder::read(const std::string& kind, const std::string& name) {
  const Found found = find(kind, name);
  std::string why = found.why, contents;
  if (found.state == SealedContents::State::whole) {
    contents.resize(found.size <= kLargestRead ? found.size : 0);
    if (contents.size() != found.size)
      why = "is larger than anything of its kind";
    else if (!read_all(found.file.get(), contents.data(), contents.size()))
      why = "cannot be read whole";
    else if (!is_sealed(found, kind, name, {reinterpret_cast<const uint8_t*>(contents.data()), contents.size()}))
      why = kNotOurs;
  }
  if (why.empty()) return contents;
  refuse(kind, name, why);
  return {};
}

SealedContents SealedFolder::map(const std::string& kind, const std::string& name) {
  const Found found = find(kind, name);
  SealedContents out{found.state, found.why, {}, nullptr};
  if (!out.is_whole()) return out;
  try {
    const auto file = map_open(found.file.get());
    const std::span<const std::byte> all = file->bytes();
    if (all.size() == found.size + sizeof(Trailer)) {
      out.bytes = {reinterpret_cast<const uint8_t*>(all.data()), found.size};
      out.keeper = file;
    }
  } catch (const Error& error) {
    out.why = fmt::format("cannot be mapped ({})", error.what());
  }
  if (out.why.empty() && (!out.keeper || !is_sealed(found, kind, name, out.bytes))) out.why = kNotOurs;
  if (out.why.empty()) return out;
  return {SealedContents::State::refused, out.why, {}, nullptr};
}

std::unique_ptr<SealedWriter> SealedFolder::create(const std::string& kind, const std::string& name) {
  LUMEN_CHECK(!name.empty() && name.find('/') == std::string::npos && !name.starts_with('.'));
  const int folder = folder_of(kind, true);
  if (folder < 0) return nullptr;
  try {
    return std::make_unique<SealedWriter>(*this, folder, kind, name);
  } catch (const Error& error) {
    give_up_writing(error.what());
    return nullptr;
  }
}

void SealedFolder::write(const std::string& kind, const std::string& name, std::string_view contents, bool is_flushed) {
  LUMEN_CHECK(!contents.empty());
  const auto file = create(kind, name);
  if (!file) return;
  try {
    file->write(contents.data(), contents.size());
    file->finish(is_flushed);
  } catch (const Error& error) {
    give_up_writing(error.what());
  }
}

void SealedFolder::remove(const std::string& kind, const std::string& name) {
  if (const int folder = folder_of(kind, false); folder >= 0) ::unlinkat(folder, name.c_str(), 0);
}

}  // namespace lumen
