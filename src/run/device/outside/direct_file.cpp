#include "run/device/outside/direct_file.h"

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/threads/threads.h"
#include "run/device/outside/outside.h"

namespace lumen::run {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // per request
constexpr unsigned kRequests = 16;            // at once
constexpr int kThreads = 4;

// A failed transfer of a piece.
struct Failure {
  int number = 0;  // errno; 0 with bytes: unexpected end of file
  int64_t at = 0, bytes = 0;
  bool failed() const { return bytes > 0; }
};

struct Piece {
  int64_t at = 0;
  std::byte* memory = nullptr;
  int64_t bytes = 0;
};

bool is_aligned(int64_t at, const void* memory, int64_t bytes) {
  return at % kOutsideAlignment == 0 && bytes % kOutsideAlignment == 0 &&
         reinterpret_cast<uintptr_t>(memory) % kOutsideAlignment == 0;
}

}  // namespace

// Transfers pieces of one file in one direction.
class DirectFile::Queue {
 public:
  Queue(int fd, bool writes) : fd_(fd), writes_(writes) {}
  virtual ~Queue() = default;
  virtual Failure move(std::deque<Piece> pieces) = 0;
  virtual bool is_ring() const { return false; }
  std::mutex& turn() { return turn_; }

 protected:
  int fd_;
  bool writes_;

 private:
  std::mutex turn_;
};

namespace {

// Requests by io_uring. A short transfer is resubmitted for the rest.
class RingQueue : public DirectFile::Queue {
 public:
  RingQueue(int fd, bool writes) : Queue(fd, writes) { works_ = ::io_uring_queue_init(kRequests, &ring_, 0) == 0; }
  ~RingQueue() override {
    if (works_) ::io_uring_queue_exit(&ring_);
  }
  RingQueue(const RingQueue&) = delete;
  RingQueue& operator=(const RingQueue&) = delete;
  bool works() const { return works_; }
  bool is_ring() const override { return true; }

  Failure move(std::deque<Piece> pieces) override {
    Failure failure;
    std::vector<Piece> slots(kRequests);
    std::vector<size_t> free(kRequests);
    for (size_t i = 0; i < free.size(); ++i) free[i] = i;
    size_t in_flight = 0;
    while (in_flight > 0 || (!pieces.empty() && !failure.failed())) {
      for (; !free.empty() && !pieces.empty() && !failure.failed(); ++in_flight) {
        submit(slots[free.back()] = pieces.front(), free.back());
        pieces.pop_front();
        free.pop_back();
      }
      const int submitted = ::io_uring_submit_and_wait(&ring_, 1);
      LUMEN_CHECK(submitted >= 0 || submitted == -EINTR || submitted == -EAGAIN, "io_uring: {}", -submitted);
      io_uring_cqe* done = nullptr;
      while (::io_uring_peek_cqe(&ring_, &done) == 0) {
        const size_t slot = ::io_uring_cqe_get_data64(done);
        const int result = done->res;
        ::io_uring_cqe_seen(&ring_, done);
        --in_flight;
        free.push_back(slot);
        const Piece& piece = slots[slot];
        if (result == -EINTR || result == -EAGAIN) {
          pieces.push_front(piece);
        } else if (result <= 0) {
          if (!failure.failed()) failure = {-result, piece.at, piece.bytes};
        } else if (result < piece.bytes) {
          pieces.push_front({piece.at + result, piece.memory + result, piece.bytes - result});
        }
      }
    }
    return failure;
  }

 private:
  void submit(const Piece& piece, size_t slot) {
    io_uring_sqe* request = ::io_uring_get_sqe(&ring_);
    LUMEN_CHECK(request, "a ring with room for all requests is full");
    if (writes_)
      ::io_uring_prep_write(request, fd_, piece.memory, piece.bytes, piece.at);
    else
      ::io_uring_prep_read(request, fd_, piece.memory, piece.bytes, piece.at);
    ::io_uring_sqe_set_data64(request, slot);
  }

  io_uring ring_{};
  bool works_ = false;
};

// The same with a few threads, which end with the transfer.
class ThreadQueue : public DirectFile::Queue {
 public:
  using Queue::Queue;

  Failure move(std::deque<Piece> pieces) override {
    std::mutex mutex;
    Failure failure;
    work_together(std::min<size_t>(kThreads, pieces.size()), [&](int) {
      while (true) {
        Piece piece;
        {
          const std::scoped_lock lock(mutex);
          if (pieces.empty() || failure.failed()) return;
          piece = pieces.front();
          pieces.pop_front();
        }
        if (const Failure own = move_one(piece); own.failed()) {
          const std::scoped_lock lock(mutex);
          if (!failure.failed()) failure = own;
        }
      }
    });
    return failure;
  }

 private:
  Failure move_one(Piece piece) const {
    while (piece.bytes > 0) {
      const ssize_t moved = writes_ ? ::pwrite(fd_, piece.memory, piece.bytes, piece.at)
                                    : ::pread(fd_, piece.memory, piece.bytes, piece.at);
      if (moved < 0 && errno == EINTR) continue;
      if (moved <= 0) return {moved < 0 ? errno : 0, piece.at, piece.bytes};
      piece = {piece.at + moved, piece.memory + moved, piece.bytes - moved};
    }
    return {};
  }
};

std::unique_ptr<DirectFile::Queue> make_queue(int fd, bool writes, DirectFile::Transport transport) {
  if (transport == DirectFile::Transport::best)
    if (auto ring = std::make_unique<RingQueue>(fd, writes); ring->works()) return ring;
  return std::make_unique<ThreadQueue>(fd, writes);
}

std::string reason(int number) {
  return number == 0 ? "the file has ended" : std::strerror(number);
}

constexpr const char* kHint =
    "free some room there, or name another folder (--offload moments=DIR); checkpoints are whole, and --resume goes on "
    "from the newest";

}  // namespace

DirectFile::DirectFile(std::filesystem::path path, int64_t bytes, Transport transport)
    : path_(std::move(path)), bytes_(bytes) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  constexpr mode_t kOwner = 0600;
  LUMEN_CHECK(bytes > 0 && bytes % kOutsideAlignment == 0, "{} bytes", bytes);
  fd_ = ::open(path_.c_str(), kFlags | O_DIRECT, kOwner);
  if (fd_ < 0 && errno == EINVAL) {
    ::unlink(path_.c_str());  // some file systems create the file before they refuse the flag
    direct_ = false;
    fd_ = ::open(path_.c_str(), kFlags, kOwner);
  }
  if (fd_ < 0) throw Error(Exit::user, fmt::format("cannot make '{}': {}", path_.string(), reason(errno)), kHint);
  ::unlink(path_.c_str());
  int failed = ::fallocate(fd_, 0, 0, bytes_) == 0 ? 0 : errno;
  if (failed == EOPNOTSUPP) failed = ::ftruncate(fd_, bytes_) == 0 ? 0 : errno;
  if (failed != 0) {
    ::close(fd_);
    throw Error(Exit::user, fmt::format("no room for the {} bytes of '{}': {}", bytes_, path_.string(), reason(failed)),
                kHint);
  }
  reads_ = make_queue(fd_, false, transport);
  writes_ = make_queue(fd_, true, transport);
}

DirectFile::~DirectFile() {
  reads_ = nullptr;
  writes_ = nullptr;
  ::close(fd_);
}

bool DirectFile::uses_ring() const {
  return reads_->is_ring() && writes_->is_ring();
}

std::string DirectFile::describe() const {
  return fmt::format("'{}' ({}, {})", path_.parent_path().string(), uses_ring() ? "io_uring" : "threads",
                     direct_ ? "direct" : "through the page cache");
}

void DirectFile::transfer(bool writes, int64_t at, std::byte* memory, int64_t bytes) {
  Queue& queue = writes ? *writes_ : *reads_;
  std::deque<Piece> pieces;
  for (int64_t done = 0; done < bytes; done += kPiece)
    pieces.push_back({at + done, memory + done, std::min(kPiece, bytes - done)});
  const std::scoped_lock lock(queue.turn());
  if (const Failure f = queue.move(std::move(pieces)); f.failed())
    throw Error(Exit::user,
                fmt::format("cannot {} {} bytes at {} of '{}': {}", writes ? "write" : "read", f.bytes, f.at,
                            path_.string(), reason(f.number)),
                kHint);
}

namespace {

// An aligned bounce buffer for unaligned transfers.
struct Bounce {
  static constexpr std::align_val_t kAligned{kOutsideAlignment};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, kAligned); }
  };
  explicit Bounce(int64_t bytes) : memory(new (kAligned) std::byte[bytes]) {}
  std::byte* at(int64_t i) const { return memory.get() + i; }
  std::unique_ptr<std::byte[], Free> memory;
};

// Calls `use` (aligned offset in the file, aligned size, offset of the useful bytes, their count, bytes done before).
template <class F>
void by_blocks(int64_t at, int64_t bytes, int64_t most, const F& use) {
  for (int64_t done = 0; done < bytes;) {
    const int64_t begin = (at + done) / kOutsideAlignment * kOutsideAlignment, skipped = at + done - begin;
    const int64_t counts = std::min(bytes - done, most - skipped);
    use(begin, outside_size(skipped + counts), skipped, counts, done);
    done += counts;
  }
}

constexpr int64_t kBounce = 4 * kPiece;

}  // namespace

void DirectFile::read(int64_t at, std::byte* to, int64_t bytes) {
  LUMEN_CHECK(at >= 0 && bytes >= 0 && bytes <= bytes_ - at, "{} bytes at {} of {}", bytes, at, bytes_);
  if (is_aligned(at, to, bytes)) return transfer(false, at, to, bytes);
  const Bounce bounce(kBounce);
  by_blocks(at, bytes, kBounce, [&](int64_t begin, int64_t size, int64_t skipped, int64_t counts, int64_t done) {
    transfer(false, begin, bounce.at(0), size);
    std::memcpy(to + done, bounce.at(skipped), counts);
  });
}

void DirectFile::write(int64_t at, const std::byte* from, int64_t bytes) {
  LUMEN_CHECK(at >= 0 && bytes >= 0 && bytes <= bytes_ - at, "{} bytes at {} of {}", bytes, at, bytes_);
  auto* const memory = const_cast<std::byte*>(from);
  if (is_aligned(at, from, bytes)) return transfer(true, at, memory, bytes);
  const Bounce bounce(kBounce);
  by_blocks(at, bytes, kBounce, [&](int64_t begin, int64_t size, int64_t skipped, int64_t counts, int64_t done) {
    if (skipped + counts != size || skipped > 0) transfer(false, begin, bounce.at(0), size);
    std::memcpy(bounce.at(skipped), memory + done, counts);
    transfer(true, begin, bounce.at(0), size);
  });
}

}  // namespace lumen::run
