// Transports between ranks: shared memory, TCP, MPI, or the library of a GPU's vendor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "run/device/device.h"

namespace lumen::run {

// Indexed by rank: consecutive pieces of memory.
struct SentPiece {
  const void* data = nullptr;
  int64_t bytes = 0;
};
struct TakenPiece {
  void* data = nullptr;
  int64_t bytes = 0;
};
using SentPieces = std::vector<std::vector<SentPiece>>;
using TakenPieces = std::vector<std::vector<TakenPiece>>;

// A rank is lost, or has announced its end. Exit code: that of a failure by data or files.
class RankLost : public Error {
 public:
  // `has_told`: the rank itself has reported the reason, to the others and to the user.
  RankLost(int rank, const std::string& why, bool has_told = false);
  int rank() const { return rank_; }
  bool has_told() const { return has_told_; }

 private:
  int rank_;
  bool has_told_;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string describe() const = 0;  // "shared memory"
  // See Communicator::exchange; pieces for the rank itself have been copied before.
  virtual void exchange(const SentPieces& to, const TakenPieces& from) = 0;
  // The stream on which exchanges of device memory run, if there is one: enqueued exchanges are not waited for. Null:
  // there is none.
  virtual Device::Stream* stream() { return nullptr; }
  virtual void enqueue(const SentPieces&, const TakenPieces&) {}
  virtual bool serves_any_thread() const { return true; }  // one at a time; otherwise only the thread that created it
  virtual void check() {}                                  // RankLost if a rank is lost
  virtual void abort(const std::string& why) noexcept = 0;
};

constexpr int64_t kLongestReason = 2000;  // of an abort, in bytes

// Iterates over the pieces of one rank, some bytes at a time.
template <class Piece>
class PieceWalk {
 public:
  explicit PieceWalk(const std::vector<Piece>& pieces) : pieces_(&pieces) {
    for (const Piece& p : pieces) left_ += p.bytes;
    skip_empty();
  }
  int64_t left() const { return left_; }
  // The next contiguous bytes; empty at the end.
  Piece next() const {
    if (left_ == 0) return {};
    Piece p = (*pieces_)[at_];
    p.data = moved(p.data, done_);
    p.bytes -= done_;
    return p;
  }
  void advance(int64_t bytes) {
    left_ -= bytes;
    done_ += bytes;
    skip_empty();
  }

 private:
  static const void* moved(const void* p, int64_t by) { return reinterpret_cast<const std::byte*>(p) + by; }
  static void* moved(void* p, int64_t by) { return reinterpret_cast<std::byte*>(p) + by; }
  void skip_empty() {
    while (at_ < pieces_->size() && done_ == (*pieces_)[at_].bytes) {
      ++at_;
      done_ = 0;
    }
  }

  const std::vector<Piece>* pieces_;
  size_t at_ = 0;
  int64_t done_ = 0, left_ = 0;
};

}  // namespace lumen::run
