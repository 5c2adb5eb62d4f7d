#include "run/ranks/mpi.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "run/device/shared_library.h"

namespace lumen::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMostAtOnce = int64_t{1} << 30;  // counts are ints
constexpr int kDataTag = 1, kAbortTag = 2;
constexpr int kFunneled = 1;  // MPI_THREAD_FUNNELED

struct Symbols {
#define X(name, parameters, symbol) int(*name) parameters = nullptr;
#include "run/ranks/mpi_symbols.def"
#undef X
  void *world = nullptr, *bytes = nullptr, *errors_return = nullptr;
};

Symbols open_symbols() {
  const char* advice = "install Debian's openmpi-bin (libopenmpi3), or name libmpi.so.40 in LUMEN_MPI_LIBRARY";
  const SharedLibrary opened = open_shared_library("LUMEN_MPI_LIBRARY", {"libmpi.so.40"}, RTLD_NOW | RTLD_GLOBAL,
                                                   "library of Open MPI, which has started this process", advice);
  Symbols out;
  std::vector<std::string> missing;
  const auto find = [&](const char* symbol) {
    void* found = ::dlsym(opened.handle, symbol);
    if (!found) missing.emplace_back(symbol);
    return found;
  };
#define X(name, parameters, symbol) out.name = reinterpret_cast<decltype(out.name)>(find(symbol));
#include "run/ranks/mpi_symbols.def"
#undef X
  out.world = find("ompi_mpi_comm_world");
  out.bytes = find("ompi_mpi_byte");
  out.errors_return = find("ompi_mpi_errors_return");
  if (!missing.empty())
    throw Error(Exit::hardware,
                fmt::format("{} is no library of Open MPI: it lacks {}", opened.file, fmt::join(missing, ", ")),
                advice);
  return out;
}

class MpiTransport : public Transport {
 public:
  explicit MpiTransport(const RankPlace& place) : mpi_(open_symbols()), rank_(place.rank), size_(place.size) {
    int given = 0, rank = 0, size = 0;
    check(mpi_.start(nullptr, nullptr, kFunneled, &given), "MPI_Init_thread");
    check(mpi_.on_errors(mpi_.world, mpi_.errors_return), "MPI_Comm_set_errhandler");
    check(mpi_.rank_of(mpi_.world, &rank), "MPI_Comm_rank");
    check(mpi_.size_of(mpi_.world, &size), "MPI_Comm_size");
    if (rank != rank_ || size != size_)
      throw Error(
          Exit::user,
          fmt::format("MPI calls this process rank {} of {}, the environment {} of {}", rank, size, rank_, size_),
          "mpirun and the library must be of one version of Open MPI");
  }
  // A failed rank does not wait for others: mpirun ends them.
  ~MpiTransport() override {
    if (!failed_) mpi_.finish();
  }

  std::string describe() const override { return "MPI"; }
  bool serves_any_thread() const override { return false; }

  void exchange(const SentPieces& to, const TakenPieces& from) override {
    std::vector<void*> requests;
    for (int step = 1; step < size_; ++step) {
      const int r = (rank_ + step) % size_;
      for (PieceWalk<TakenPiece> walk(from[r]); walk.left() > 0;) {
        const TakenPiece next = walk.next();
        const int count = std::min(next.bytes, kMostAtOnce);
        check(mpi_.take(next.data, count, mpi_.bytes, r, kDataTag, mpi_.world, &requests.emplace_back()), "MPI_Irecv");
        walk.advance(count);
      }
      for (PieceWalk<SentPiece> walk(to[r]); walk.left() > 0;) {
        const SentPiece next = walk.next();
        const int count = std::min(next.bytes, kMostAtOnce);
        check(mpi_.send(next.data, count, mpi_.bytes, r, kDataTag, mpi_.world, &requests.emplace_back()), "MPI_Isend");
        walk.advance(count);
      }
    }
    wait(requests);
  }

  void check() override {
    for (int r = 0; r < size_; ++r) {
      int there = 0;
      if (r == rank_ || mpi_.look(r, kAbortTag, mpi_.world, &there, nullptr) != 0 || !there) continue;
      std::array<char, kLongestReason> why{};
      void* request = nullptr;
      int done = 0;
      if (mpi_.take(why.data(), why.size(), mpi_.bytes, r, kAbortTag, mpi_.world, &request) == 0)
        for (int i = 0; i < 1000 && !done; ++i) mpi_.test_all(1, &request, &done, nullptr);
      failed_ = true;
      throw RankLost(r, std::string(why.data(), ::strnlen(why.data(), why.size())), true);
    }
  }

  void abort(const std::string& why) noexcept override {
    failed_ = true;
    reason_.fill(0);
    std::copy_n(why.begin(), std::min(why.size(), reason_.size() - 1), reason_.begin());
    std::vector<void*> requests;
    for (int r = 0; r < size_; ++r)
      if (r != rank_)
        mpi_.send(reason_.data(), reason_.size(), mpi_.bytes, r, kAbortTag, mpi_.world, &requests.emplace_back());
    int done = 0;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(1);
    while (!done && Clock::now() < end) mpi_.test_all(std::ssize(requests), requests.data(), &done, nullptr);
  }

 private:
  void wait(std::vector<void*>& requests) {
    int done = 0;
    Clock::time_point last = Clock::now();
    for (int64_t turn = 0;; ++turn) {
      check(mpi_.test_all(std::ssize(requests), requests.data(), &done, nullptr), "MPI_Testall");
      if (done) return;
      if (turn > 100) std::this_thread::sleep_for(std::chrono::microseconds(20));
      if (Clock::now() - last < std::chrono::milliseconds(100)) continue;
      last = Clock::now();
      check();
    }
  }

  void check(int error, const char* what) {
    if (error == 0) return;
    failed_ = true;
    throw Error(Exit::user, fmt::format("{} failed with code {}: another rank may be gone", what, error),
                "the newest checkpoint is whole: --resume goes on from it, with as many ranks or with fewer");
  }

  Symbols mpi_;
  int rank_, size_;
  bool failed_ = false;
  std::array<char, kLongestReason> reason_{};
};

}  // namespace

std::unique_ptr<Transport> join_mpi(const RankPlace& place) {
  return std::make_unique<MpiTransport>(place);
}

}  // namespace lumen::run
