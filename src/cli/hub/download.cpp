#include "cli/hub/download.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/transfer.h"
#include "base/log.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/hub/digest.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpare = uint64_t{64} << 20;    // bytes that stay free on the file system
constexpr uint64_t kProgress = uint64_t{1} << 20;  // after so many bytes attempts are counted from the start
constexpr size_t kPiece = size_t{1} << 20;         // bytes read at once

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (fd_ < 0) throw system_error("open", path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(fd_); }
  int operator*() const { return fd_; }

 private:
  int fd_;
};

// The lock of one file, the same that huggingface_hub takes: .locks/models--USER--REPO/ETAG.lock.
class FileLock {
 public:
  explicit FileLock(const fs::path& path, const std::string& name) : file_(made(path), O_RDWR | O_CREAT) {
    bool said = false;
    while (::flock(*file_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw system_error("lock", path);
      if (!said) note(fmt::format("another process downloads {}; waiting for it", name));
      said = true;
      if (interrupted()) throw Interrupted{};
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  static const fs::path& made(const fs::path& path) {
    fs::create_directories(path.parent_path());
    return path;
  }
  Descriptor file_;
};

std::optional<uint64_t> size_of_file(const fs::path& path) {
  std::error_code failure;
  const uintmax_t size = fs::file_size(path, failure);
  return failure ? std::nullopt : std::optional<uint64_t>(size);
}

// The growing file of one download with the digest of what it holds.
class GrowingFile {
 public:
  GrowingFile(const fs::path& path, const RemoteFile& file)
      : path_(path), file_(file), descriptor_(path, O_RDWR | O_CREAT), digest_(digest_kind(file.etag), file.size) {
    struct stat state{};
    if (::fstat(*descriptor_, &state) != 0) throw system_error("read", path);
    if (uint64_t(state.st_size) > file.size)
      clear();
    else
      add_existing(uint64_t(state.st_size));
  }

  uint64_t size() const { return size_; }

  void clear() {
    if (::ftruncate(*descriptor_, 0) != 0) throw system_error("truncate", path_);
    digest_ = Digest(digest_kind(file_.etag), file_.size);
    size_ = 0;
  }

  void add(std::string_view piece) {
    if (!write_all_at(*descriptor_, piece.data(), piece.size(), size_)) throw system_error("write", path_);
    digest_.add(piece.data(), piece.size());
    size_ += piece.size();
  }

  // Whether the contents have the hash that names them; true where the name is no hash.
  bool is_right() {
    const std::string hash = digest_.hex();
    return hash.empty() || hash == file_.etag;
  }

  void become(const fs::path& path) {
    if (::fsync(*descriptor_) != 0) throw system_error("write", path_);
    fs::rename(path_, path);
  }

 private:
  void add_existing(uint64_t bytes) {
    std::vector<char> buffer(kPiece);
    while (size_ < bytes) {
      if (interrupted()) throw Interrupted{};
      const size_t piece = size_t(std::min<uint64_t>(buffer.size(), bytes - size_));
      if (!read_all_at(*descriptor_, buffer.data(), piece, size_)) throw system_error("read", path_);
      digest_.add(buffer.data(), piece);
      size_ += piece;
    }
  }

  const fs::path path_;
  const RemoteFile& file_;
  Descriptor descriptor_;
  Digest digest_;
  uint64_t size_ = 0;
};

// Checks the head of an answer that continues at `begin`; the reason why it is refused, or empty.
std::string wrong_head(const FetchReply& head, uint64_t begin, uint64_t size) {
  if (head.status == 206) {
    const std::string range = head.header("content-range"), expected = fmt::format("bytes {}-{}/", begin, size - 1);
    const bool right = range == expected + std::to_string(size) || range == expected + "*";
    return right ? "" : fmt::format("it has the range '{}' of {} bytes", printable(range.substr(0, 80)), size);
  }
  const std::string length = head.header("content-length");
  const bool right = length.empty() || length == std::to_string(size);
  return right ? "" : fmt::format("it announces {} bytes of {}", printable(length.substr(0, 40)), size);
}

}  // namespace

Downloader::Downloader(HubClient& client, model::file::HubName name)
    : client_(client), name_(std::move(name)), cache_(model::file::hub_cache()), folder_(cache_ / name_.folder()) {
  for (const char* part : {"blobs", "refs", "snapshots"}) fs::create_directories(folder_ / part);
}

bool Downloader::has(const RemoteFile& file) const {
  return size_of_file(snapshot(file.commit) / file.path) == file.size;
}

uint64_t Downloader::missing(const RemoteFile& file) const {
  if (has(file) || size_of_file(blob(file)) == file.size) return 0;
  const uint64_t there = size_of_file(part(file)).value_or(0);
  return there > file.size ? file.size : file.size - there;
}

void Downloader::require_space(uint64_t bytes) const {
  struct statvfs state{};
  if (bytes == 0 || ::statvfs(folder_.c_str(), &state) != 0) return;
  const uint64_t free = uint64_t(state.f_bavail) * state.f_frsize;
  if (bytes + kSpare <= free) return;
  throw Error(Exit::hardware,
              fmt::format("{} are needed, and the file system of {} has {} free", size_text(double(bytes)),
                          cache_.string(), size_text(double(free))),
              "`lumen rm NAME` removes models; HF_HUB_CACHE names a cache elsewhere");
}

void Downloader::get(RemoteFile file, const Report& report) {
  const FileLock lock(cache_ / ".locks" / name_.folder() / (file.etag + ".lock"), file.path);
  if (size_of_file(blob(file)) != file.size) download(file, report);
  link(file);
  report(file.size);
}

void Downloader::download(RemoteFile& file, const Report& report) {
  if (digest_kind(file.etag) == DigestKind::none)
    warn(fmt::format("{}: the hub gives no hash, so only the size is checked", file.path));
  bool was_wrong = false;
  for (int attempt = 1;; ++attempt) {
    GrowingFile growing(part(file), file);
    uint64_t begin = growing.size();
    const bool resumes = begin > 0;
    FetchReply reply;
    if (begin < file.size) {
      std::string refused;
      bool is_first = true;
      const auto take = [&](const FetchReply& head, std::string_view piece) {
        if (is_first) {
          is_first = false;
          if (head.status == 200) growing.clear();  // the whole file, where a part was requested
          refused = wrong_head(head, growing.size(), file.size);
        }
        if (refused.empty() && piece.size() > file.size - growing.size())
          refused = fmt::format("it sends more than {} bytes", file.size);
        if (!refused.empty()) return false;
        growing.add(piece);
        report(growing.size());
        return true;
      };
      reply = client_.read(file, begin, take);
      if (!refused.empty()) {
        growing.clear();
        reply.failure = FetchFailure::refused;
        reply.reason = refused;
        throw client_.failed(reply, name_, file.path);
      }
    }
    if (growing.size() == file.size) {
      if (growing.is_right()) return growing.become(blob(file));
      growing.clear();
      if (!resumes || was_wrong)
        throw Error(Exit::verify, fmt::format("{}: the contents do not have the hash {}", file.path, file.etag),
                    "what was downloaded is removed; the hub or a proxy changes the file: try another network or "
                    "mirror");
      was_wrong = true;
      note(fmt::format("{}: the partial download is damaged; the download starts again", file.path));
      continue;
    }
    if (growing.size() >= begin + kProgress) attempt = 1;
    if (reply.failure == FetchFailure::none && (reply.status == 200 || reply.status == 206)) {
      reply.failure = FetchFailure::broken;
      reply.reason = fmt::format("{} of {} bytes came", growing.size(), file.size);
    }
    const bool is_signed_address_old =
        reply.failure == FetchFailure::none && (reply.status == 401 || reply.status == 403);
    if (reply.failure == FetchFailure::none && reply.status == 416) growing.clear();
    const bool again = HubClient::may_pass(reply) || is_signed_address_old || reply.status == 416;
    if (!again || attempt > client_.options().retries) throw client_.failed(reply, name_, file.path);
    client_.wait(reply, attempt, file.path);
    file.location = client_.locate(name_, file.commit, file.path).location;  // addresses of contents expire
  }
}

// A relative link, as huggingface_hub makes it; where the file system has no links, the file itself.
void Downloader::link(const RemoteFile& file) {
  const fs::path at = snapshot(file.commit) / file.path;
  fs::path target = "../..";
  for (const char c : file.path)
    if (c == '/') target /= "..";
  target = target / "blobs" / file.etag;
  std::error_code failure;
  if (fs::is_symlink(at, failure) && fs::read_symlink(at, failure) == target) return;
  fs::create_directories(at.parent_path());
  const fs::path temporary = at.parent_path() / fmt::format(".{}.link", file.etag);
  fs::remove(temporary, failure);
  fs::create_symlink(target, temporary, failure);
  if (failure)
    fs::rename(blob(file), at);
  else
    fs::rename(temporary, at);
}

void Downloader::set_commit(const std::string& revision, const std::string& commit) {
  if (revision == commit) return;
  const fs::path file = folder_ / "refs" / revision;
  fs::create_directories(file.parent_path());
  write_file_atomic(file, commit);
}

}  // namespace lumen::cli
