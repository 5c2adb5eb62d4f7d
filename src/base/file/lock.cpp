#include "base/file/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace lumen {
namespace {

constexpr const char* kName = ".lumen.lock";

// The process number that the holder wrote into the file; empty until the holder has written it.
std::string holder_of(int fd) {
  char text[32] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  std::string pid;
  for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9'; ++i) pid += text[i];
  return pid;
}

// Whether the name still refers to the open file: a holder unlinks the name when it ends.
bool is_current(int fd, const std::filesystem::path& file) {
  struct stat held{}, named{};
  return ::fstat(fd, &held) == 0 && ::lstat(file.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) : file_(folder / kName) {
  std::error_code error;
  for (std::filesystem::path up = folder; !up.empty() && !std::filesystem::exists(up, error); up = up.parent_path())
    if (up.has_filename()) made_.push_back(up);
  std::filesystem::create_directories(folder, error);
  if (error) throw user_error("cannot create '{}': {}", folder.string(), error.message());
  for (;;) {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd_ < 0) {
      const int number = errno;
      throw Error(Exit::user, fmt::format("cannot write into '{}': {}", folder.string(), std::strerror(number)),
                  "check the folder's permissions and the disk, or name another folder");
    }
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int number = errno;
      const std::string pid = holder_of(fd_);
      ::close(fd_);
      fd_ = -1;
      if (number != EWOULDBLOCK && number != EINTR) {
        warn(fmt::format("'{}' cannot be locked ({}): see that no second run writes there", folder.string(),
                         std::strerror(number)));
        return;
      }
      if (number == EINTR) continue;
      throw Error(Exit::user,
                  fmt::format("'{}' is in use by {}", folder.string(), pid.empty() ? "another run" : "process " + pid),
                  "wait until it has ended, or name another folder");
    }
    if (is_current(fd_, file_)) break;
    ::close(fd_);
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  const bool written = ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, pid.data(), pid.size(), 0) == std::ssize(pid);
  if (!written) {
    const int number = errno;
    ::unlink(file_.c_str());
    ::close(fd_);
    throw user_error("cannot write into '{}': {}", folder.string(), std::strerror(number));
  }
}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  ::unlink(file_.c_str());  // while locked: a process that opened it earlier finds that the name refers to another file
  ::close(fd_);
  for (const std::filesystem::path& folder : made_)
    if (::rmdir(folder.c_str()) != 0) return;  // not empty any more
}

}  // namespace lumen
