#include "model/calibrate/carried.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/threads/team.h"

namespace lumen::model::calibrate {
namespace {

constexpr int64_t kPiece = int64_t{4} << 20;

// Calls move(from, size), which returns the number of bytes moved, as pread does, until `bytes` are done; in pieces by
// all threads, because one thread copies no faster than one core can. False on failure: errno has the first failed
// call's reason, 0 at the end of the file.
template <typename Move>
bool in_pieces(int64_t bytes, Move move) {
  const int64_t pieces = (bytes + kPiece - 1) / kPiece;
  std::atomic<int> failed = -1;
  parallel_for(0, pieces, {.grain = 1, .is_worth = pieces > 1}, [&](int64_t i) {
    const int64_t end = std::min(bytes, (i + 1) * kPiece);
    for (int64_t from = i * kPiece; from < end && failed < 0;) {
      const ssize_t n = move(from, end - from);
      if (n < 0 && errno == EINTR) continue;
      if (n > 0) {
        from += n;
        continue;
      }
      int none = -1;
      failed.compare_exchange_strong(none, n < 0 ? errno : 0);
    }
  });
  if (failed >= 0) errno = failed;
  return failed < 0;
}

}  // namespace

class CarriedValues::File {
 public:
  explicit File(const std::filesystem::path& path) : path_(path) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd_ < 0) throw system_error("write", path);
    size_ = std::max<int64_t>(0, lseek(fd_, 0, SEEK_END));
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(fd_); }

  void write(int64_t at, std::span<const uint8_t> part) {
    if (!in_pieces(part.size(),
                   [&](int64_t from, int64_t size) { return pwrite(fd_, part.data() + from, size, at + from); }))
      throw system_error("write", path_);
    size_ = std::max<int64_t>(size_, at + part.size());
  }
  void read(int64_t at, std::span<uint8_t> part) {
    if (in_pieces(part.size(),
                  [&](int64_t from, int64_t size) { return pread(fd_, part.data() + from, size, at + from); }))
      return;
    if (errno != 0) throw system_error("read", path_);
    throw Error(Exit::user, fmt::format("'{}' is shorter than it was when it was written", path_.string()),
                "remove its folder and begin anew");
  }
  void sync() {
    if (fsync(fd_) != 0) throw system_error("write", path_);
  }
  int64_t size() const { return size_; }

 private:
  const std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

std::filesystem::path CarriedValues::path(int number) const {
  return folder_ / fmt::format("{}.{}.values", name_, number);
}

CarriedValues::File& CarriedValues::file(int number) {
  std::shared_ptr<File>& f = files_[number];
  if (!f) f = std::make_shared<File>(path(number));
  return *f;
}

void CarriedValues::write(int number, int64_t at, std::span<const uint8_t> part) {
  seals_.erase(number);
  if (!folder_.empty()) return file(number).write(at, part);
  std::vector<uint8_t>& memory = memory_[number];
  memory.resize(std::max<size_t>(memory.size(), at + part.size()));
  std::ranges::copy(part, memory.begin() + at);
}

void CarriedValues::read(int number, int64_t at, std::span<uint8_t> part) {
  if (!folder_.empty()) return file(number).read(at, part);
  const std::vector<uint8_t>& memory = memory_.at(number);
  LUMEN_CHECK(at + part.size() <= memory.size(), "carried values that were never written");
  std::copy_n(memory.begin() + at, part.size(), part.begin());
}

void CarriedValues::keep(int number) {
  if (folder_.empty()) return;
  file(number).sync();
  if (key_) seals_[number] = seal_of(number);
}

Seal CarriedValues::seal_of(int number) {
  ContentSeal made(*key_, fmt::format("values/{}/{}", name_, number));
  std::vector<uint8_t> piece;
  const int64_t size = file(number).size();
  for (int64_t at = 0; at < size; at += std::ssize(piece)) {
    piece.resize(std::min(kPiece, size - at));
    file(number).read(at, piece);
    made.add(piece.data(), piece.size());
  }
  return made.finish();
}

std::map<int, Seal> CarriedValues::seals(std::span<const int> numbers) const {
  std::map<int, Seal> out;
  for (const int number : numbers) {
    const auto found = seals_.find(number);
    LUMEN_CHECK(found != seals_.end(), "value {} of '{}' was not kept", number, name_);
    out.insert(*found);
  }
  return out;
}

bool CarriedValues::take_up(const std::map<int, Seal>& kept) {
  LUMEN_CHECK(key_ && !folder_.empty());
  std::map<int, Seal> found;
  for (const auto& [number, seal] : kept) {
    std::error_code none;
    if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path(number), none))) return false;
    if (!same_seal(found[number] = seal_of(number), seal)) return false;
  }
  seals_ = std::move(found);
  return true;
}

void CarriedValues::drop(int number) {
  seals_.erase(number);
  memory_.erase(number);
  files_.erase(number);
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove(path(number), ignored);
}

int64_t CarriedValues::bytes() const {
  int64_t all = 0;
  for (const auto& [number, memory] : memory_) all += memory.size();
  for (const auto& [number, f] : files_) all += f->size();
  return all;
}

}  // namespace lumen::model::calibrate
