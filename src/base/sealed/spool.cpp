#include "base/sealed/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "base/error.h"
#include "base/file/file.h"
#include "base/file/transfer.h"
#include "base/log.h"
#include "base/sealed/trailer.h"

namespace lumen {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

int open_private(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd >= 0) return fd;
  std::string name = (folder / "lumen-XXXXXX").string();  // for file systems without O_TMPFILE
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

class Spool::PrivateFile {
 public:
  PrivateFile() {
    std::error_code none;
    folder_ = std::filesystem::temp_directory_path(none);
    if (!none) fd_ = open_private(folder_);
  }
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;
  ~PrivateFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  const std::filesystem::path& folder() const { return folder_; }

  // False when the disk is full: then these `size` bytes are missing, but all earlier bytes are there.
  bool write(const uint8_t* data, size_t size) {
    if (!write_all_at(fd_, data, size, size_)) return false;
    size_ += size;
    return true;
  }
  void read(uint64_t at, uint8_t* to, size_t size) const {
    if (!read_all_at(fd_, to, size, at)) throw system_error("read a temporary file in", folder_);
  }
  std::shared_ptr<const MappedFile> map() const { return map_open(fd_); }

 private:
  std::filesystem::path folder_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

Spool::Spool(SealedFolder* folder, const std::string& kind, const std::string& name) : folder_(folder) {
  if (!folder_) return;
  sealed_ = folder_->create(kind, name);
  if (sealed_) return;
  file_ = std::make_unique<PrivateFile>();
  if (!file_->is_open()) file_ = nullptr;
}

Spool::~Spool() = default;

bool Spool::move_to(PrivateFile& to) {
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < position_; at += piece.size()) {
    piece.resize(std::min<uint64_t>(kPiece, position_ - at));
    if (!sealed_->read_back(at, piece)) throw system_error("read back the data written to", folder_->path());
    if (!to.write(piece.data(), piece.size())) return false;
  }
  return true;
}

// Moves the bytes written so far to a private file or to memory.
void Spool::leave_folder(const std::string& why) {
  folder_->give_up_writing(why);
  file_ = std::make_unique<PrivateFile>();
  if (!file_->is_open() || !move_to(*file_)) {
    file_ = nullptr;
    memory_.resize(position_);
    if (!sealed_->read_back(0, memory_)) throw system_error("read back the data written to", folder_->path());
  }
  sealed_ = nullptr;
}

void Spool::leave_file() {
  warn(fmt::format("'{}' is full: the rest is kept in memory", file_->folder().string()));
  memory_.resize(position_);
  file_->read(0, memory_.data(), memory_.size());
  file_ = nullptr;
}

void Spool::write(const void* data, size_t size) {
  const auto* from = static_cast<const uint8_t*>(data);
  if (sealed_) {
    try {
      sealed_->write(data, size);
      position_ += size;
      return;
    } catch (const Error& error) {
      leave_folder(error.what());
    }
  }
  if (file_ && !file_->write(from, size)) leave_file();
  if (!file_) memory_.insert(memory_.end(), from, from + size);
  position_ += size;
}

void Spool::pad_to(uint64_t alignment) {
  const uint64_t rest = position_ % alignment;
  if (rest != 0) write(std::string(alignment - rest, '\0').data(), alignment - rest);
}

SealedContents Spool::finish() {
  if (sealed_) {
    try {
      sealed_->finish();
      return sealed_->map();
    } catch (const Error& error) {
      leave_folder(error.what());
    }
  }
  SealedContents out;
  out.state = SealedContents::State::whole;
  if (file_) {
    const auto map = file_->map();
    out.bytes = {reinterpret_cast<const uint8_t*>(map->bytes().data()), map->bytes().size()};
    out.keeper = map;
  } else {
    const auto own = std::make_shared<const std::vector<uint8_t>>(std::move(memory_));
    out.bytes = *own;
    out.keeper = own;
  }
  return out;
}

}  // namespace lumen
