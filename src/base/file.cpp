#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lumen {
namespace {

Error system_error(std::string_view deed, const std::filesystem::path& path) {
  const int number = errno;
  std::string hint;
  if (number == ENOSPC) hint = "the disk is full; free some space and run the command again";
  if (number == EACCES || number == EPERM) hint = "check the permissions of the file and its folder";
  return Error(Exit::user, fmt::format("cannot {} '{}': {}", deed, path.string(), std::strerror(number)), hint);
}

// Opens a regular file for reading and returns its size.
int open_regular(const std::filesystem::path& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw system_error("open", path);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    throw user_error("cannot read '{}': not a regular file", path.string());
  }
  *size = static_cast<uint64_t>(info.st_size);
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
    if (n == 0) break;  // the file shrank while we read it
    done += static_cast<size_t>(n);
  }
  ::close(fd);
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
  }
  ::close(fd);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<int> counter{0};
  temporary_ = path_;
  temporary_.replace_filename(
      fmt::format(".{}.{}.{}.part", path_.filename().string(), ::getpid(), counter.fetch_add(1)));
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) throw system_error("create", path_);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(const void* data, size_t size) {
  constexpr size_t kBuffer = 1 << 20;
  position_ += size;
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= kBuffer) flush();
}

void AtomicFile::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("write", path_);
    done += static_cast<size_t>(n);
  }
  buffer_.clear();
}

void AtomicFile::pad_to(uint64_t alignment) {
  const uint64_t rest = position_ % alignment;
  if (rest != 0) write(std::string(alignment - rest, '\0'));
}

void AtomicFile::commit() {
  flush();
  if (::fsync(fd_) != 0) throw system_error("flush", path_);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const Error error = system_error("write", path_);
    ::unlink(temporary_.c_str());
    throw error;
  }
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const int dir = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace lumen
