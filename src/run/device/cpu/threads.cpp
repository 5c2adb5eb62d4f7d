// See threads.h. Joining and closing a launch is a handshake: a worker first counts itself active, then looks whether
// the launch is open; the caller first closes it, then waits for the active ones. In one total order (seq_cst) either
// the worker sees the closed door or the caller sees the worker. Proved by tests/run/device/device_test.cpp.
#include "run/device/cpu/threads.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lumen::run {
namespace {

constexpr int64_t kPiecesPerThread = 4;  // enough to even out threads of unequal speed
constexpr auto kSpin = std::chrono::microseconds(60);

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// While it lives, this thread's arithmetic takes subnormal numbers for zeros, where asked for.
class Flushing {
 public:
  explicit Flushing(bool flushes) : flushes_(flushes) {
    if (!flushes_) return;
#if defined(__x86_64__)
    constexpr unsigned kFlushBoth = 0x8040;  // results (FTZ) and operands (DAZ)
    before_ = _mm_getcsr();
    _mm_setcsr(static_cast<unsigned>(before_) | kFlushBoth);
#elif defined(__aarch64__)
    constexpr uint64_t kFlushBoth = uint64_t{1} << 24;  // FPCR.FZ
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | kFlushBoth));
#endif
  }
  ~Flushing() {
    if (!flushes_) return;
#if defined(__x86_64__)
    _mm_setcsr(before_);
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" ::"r"(before_));
#endif
  }
  Flushing(const Flushing&) = delete;
  Flushing& operator=(const Flushing&) = delete;

 private:
  bool flushes_;
  uint64_t before_ = 0;
};

// Until `x` differs from `old`: a short spin, then sleep.
void await_change(std::atomic<int>& x, int old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (x.load(std::memory_order_acquire) != old) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() < until);
  x.wait(old);
}

}  // namespace

Threads::Threads(int count) {
  for (int i = 1; i < count; ++i) workers_.emplace_back([this] { work(); });
}

Threads::~Threads() {
  stop_ = true;
  call_.fetch_add(1);
  call_.notify_all();
  for (std::thread& t : workers_) t.join();
}

void Threads::work() {
  int seen = 0;
  for (;;) {
    await_change(call_, seen);
    seen = call_.load();
    if (stop_) return;
    active_.fetch_add(1);
    if (open_.load()) take_pieces();
    if (active_.fetch_sub(1) == 1) active_.notify_all();
  }
}

void Threads::take_pieces() {
  const Flushing flushing(flushes_.load(std::memory_order_relaxed));
  const auto cut = [&](int64_t piece) { return tasks_ / pieces_ * piece + std::min(piece, tasks_ % pieces_); };
  for (;;) {
    const int64_t piece = next_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces_) return;
    Failure failure{};
    kernel_(buffers_, cut(piece), cut(piece + 1), failure.data());
    if (failure[0] == 0) continue;
    const std::scoped_lock lock(failure_mutex_);
    if (failure_[0] == 0 || piece < failed_piece_) {
      failure_ = failure;
      failed_piece_ = piece;
    }
  }
}

Failure Threads::run(KernelFunction kernel, void* const* buffers, int64_t tasks) {
  std::unique_lock lock(busy_, std::defer_lock);
  if (tasks <= 1 || workers_.empty() || !lock.try_lock()) {
    Failure failure{};
    const Flushing flushing(flushes_.load(std::memory_order_relaxed));
    if (tasks > 0) kernel(buffers, 0, tasks, failure.data());
    return failure;
  }
  kernel_ = kernel;
  buffers_ = buffers;
  tasks_ = tasks;
  pieces_ = std::min(tasks, kPiecesPerThread * count());
  failure_ = {};
  next_.store(0);
  open_.store(true);
  call_.fetch_add(1);
  call_.notify_all();
  take_pieces();
  open_.store(false);
  for (int active = active_.load(); active != 0; active = active_.load()) await_change(active_, active);
  return failure_;
}

}  // namespace lumen::run
