// See sealed.h: writing a sealed file, and listing the files of a folder.
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/temporary.h"
#include "base/file/transfer.h"
#include "base/sealed/sealed.h"
#include "base/sealed/trailer.h"

namespace lumen {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBuffer = size_t{1} << 20;

std::string random_salt() {
  std::string salt(sizeof(Trailer::salt), '\0');
  LUMEN_CHECK(::getrandom(salt.data(), salt.size(), 0) == std::ssize(salt));
  return salt;
}

void write_whole(int fd, const void* data, size_t size, const fs::path& path) {
  if (!write_all(fd, data, size)) throw system_error("write", path);
}

// The files of a kind, with the data for choosing which to remove.
struct Entry {
  std::string kind, name;
  int64_t bytes = 0;
  struct timespec used{};
};

std::vector<Entry> entries_of(const fs::path& own) {
  std::vector<Entry> out;
  std::error_code failure;
  for (const fs::path& kind : list_folder(own, failure)) {
    std::error_code inner;
    if (!fs::is_directory(fs::symlink_status(kind, inner))) continue;
    for (const fs::path& file : list_folder(kind, inner)) {
      struct stat info{};
      const std::string name = file.filename().string();
      if (name.starts_with('.') || ::lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      out.push_back({kind.filename().string(), name, info.st_size, info.st_mtim});
    }
  }
  return out;
}

bool is_older(const timespec& a, const timespec& b) {
  return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

// Empty if it is a link or belongs to another user: its contents are not this user's to list or remove.
fs::path own_folder(const fs::path& folder) {
  const fs::path own = folder / fmt::format("user-{}", ::geteuid());
  struct stat info{};
  const bool is_own = ::lstat(own.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
  return is_own ? own : fs::path();
}

}  // namespace

std::shared_ptr<const MappedFile> map_open(int fd) {
  return std::make_shared<const MappedFile>(fmt::format("/proc/self/fd/{}", fd));
}

std::string unfinished_name(const std::string& name) {
  static std::atomic<int> counter{0};
  return fmt::format(".{}.{}.{}.part", name, ::getpid(), counter.fetch_add(1));
}

SealedWriter::SealedWriter(SealedFolder& folder, int in, std::string kind, std::string name)
    : folder_(folder),
      in_(in),
      kind_(std::move(kind)),
      name_(std::move(name)),
      salt_(random_salt()),
      seal_(std::make_unique<ContentSeal>(folder.key(), sealed_name(kind_, name_, salt_))) {
  do {
    if (fd_ >= 0) ::close(fd_);
    forget_temporary(path_);
    part_ = unfinished_name(name_);
    path_ = folder.path() / kind_ / part_;
    remember_temporary(path_);
    fd_ = ::openat(in_, part_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    // A process of another machine or container that shares the folder may have this number.
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) {
      const Error error = system_error("write to", folder.path());
      forget_temporary(path_);
      throw error;
    }
  } while (fd_ < 0 || !lock_new(fd_));
}

SealedWriter::~SealedWriter() {
  if (!path_.empty()) {
    ::unlinkat(in_, part_.c_str(), 0);
    forget_temporary(path_);
  }
  ::close(fd_);
}

void SealedWriter::flush() {
  write_whole(fd_, buffer_.data(), buffer_.size(), folder_.path());
  written_ += buffer_.size();
  buffer_.clear();
}

void SealedWriter::write(const void* data, size_t size) {
  seal_->add(data, size);
  position_ += size;
  buffer_.append(static_cast<const char*>(data), size);
  if (buffer_.size() >= kBuffer) flush();
}

bool SealedWriter::read_back(uint64_t at, std::span<uint8_t> to) {
  LUMEN_CHECK(at + to.size() <= position_);
  const size_t done = at < written_ ? std::min<uint64_t>(to.size(), written_ - at) : 0;
  if (!read_all_at(fd_, to.data(), done, at)) return false;
  if (done < to.size()) std::memcpy(to.data() + done, buffer_.data() + (at + done - written_), to.size() - done);
  return true;
}

void SealedWriter::finish(bool is_flushed) {
  Trailer trailer{};
  std::memcpy(trailer.magic, Trailer::kMagic, sizeof trailer.magic);
  trailer.size = position_;
  std::memcpy(trailer.salt, salt_.data(), sizeof trailer.salt);
  trailer.seal = seal_->finish();
  flush();
  write_whole(fd_, &trailer, sizeof trailer, folder_.path());
  if (is_flushed && ::fsync(fd_) != 0) throw system_error("flush", folder_.path());
  if (::renameat(in_, part_.c_str(), in_, name_.c_str()) != 0) throw system_error("write to", folder_.path());
  forget_temporary(path_);
  path_.clear();
  if (is_flushed) (void)::fsync(in_);  // some file systems cannot; the file exists in any case
  folder_.keep_within_limit(int64_t(position_ + sizeof trailer), kind_, name_);
}

SealedContents SealedWriter::map() const {
  LUMEN_CHECK(path_.empty());
  const auto file = map_open(fd_);
  const std::span<const std::byte> all = file->bytes();
  if (all.size() != position_ + sizeof(Trailer))
    throw user_error("'{}' differs from the data written to it", (folder_.path() / kind_ / name_).string());
  return {SealedContents::State::whole, {}, {reinterpret_cast<const uint8_t*>(all.data()), position_}, file};
}

// `more` bytes were added under this name; this file stays, whatever its size.
void SealedFolder::keep_within_limit(int64_t more, const std::string& kind, const std::string& name) {
  if (options_.most_bytes <= 0) return;
  const std::scoped_lock lock(mutex_);
  if (bytes_ >= 0) bytes_ += more;
  if (bytes_ >= 0 && bytes_ <= options_.most_bytes) return;
  std::vector<Entry> all = entries_of(fmt::format("/proc/self/fd/{}", own_));
  bytes_ = 0;
  for (const Entry& e : all) bytes_ += e.bytes;
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) { return is_older(a.used, b.used); });
  for (const Entry& e : all) {
    if (bytes_ <= options_.most_bytes) return;
    if (e.kind == kind && e.name == name) continue;
    if (::unlinkat(own_, (e.kind + "/" + e.name).c_str(), 0) == 0) bytes_ -= e.bytes;
  }
}

std::vector<SealedKind> list_sealed(const fs::path& folder) {
  std::map<std::string, SealedKind> kinds;
  for (const Entry& e : entries_of(own_folder(folder))) {
    SealedKind& kind = kinds[e.kind];
    const auto used = std::chrono::system_clock::from_time_t(e.used.tv_sec);
    kind.oldest = kind.files == 0 ? used : std::min(kind.oldest, used);
    kind.name = e.kind;
    ++kind.files;
    kind.bytes += e.bytes;
  }
  std::vector<SealedKind> out;
  for (auto& [name, kind] : kinds) out.push_back(std::move(kind));
  return out;
}

int64_t clear_sealed(const fs::path& folder, const std::string& kind) {
  int64_t gone = 0;
  const fs::path own = own_folder(folder);
  if (own.empty()) return gone;
  for (const Entry& e : entries_of(own)) {
    if (!kind.empty() && e.kind != kind) continue;
    const fs::path file = own / e.kind / e.name;
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) throw system_error("remove", file);
    gone += e.bytes;
  }
  return gone;
}

}  // namespace lumen
