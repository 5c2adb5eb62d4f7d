#include "run/device/cpu/threads.h"

#include <algorithm>
#include <mutex>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lumen::run {
namespace {

constexpr int64_t kPiecesPerThread = 4;  // enough to balance threads of unequal speed

// Flushes this thread's subnormal numbers to zero during its lifetime, if requested.
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

struct Launch {
  KernelFunction kernel;
  void* const* buffers;
  int64_t tasks, pieces;
  bool flushes;
  std::mutex mutex = {};  // guards the following members
  Failure failure = {};
  int64_t failed_piece = 0;

  int64_t cut(int64_t piece) const { return tasks / pieces * piece + std::min(piece, tasks % pieces); }
  static void work(void* context, Team::Pieces& left) {
    auto& self = *static_cast<Launch*>(context);
    const Flushing flushing(self.flushes);
    for (int64_t piece = left.take(); piece >= 0; piece = left.take()) {
      Failure failure{};
      self.kernel(self.buffers, self.cut(piece), self.cut(piece + 1), failure.data());
      if (failure[0] == 0) continue;
      const std::scoped_lock lock(self.mutex);
      if (self.failure[0] != 0 && self.failed_piece < piece) continue;
      self.failure = failure;
      self.failed_piece = piece;
    }
  }
};

}  // namespace

Failure Threads::run(KernelFunction kernel, void* const* buffers, int64_t tasks) {
  if (tasks <= 0) return {};
  const int64_t pieces = count() == 1 ? 1 : std::min(tasks, kPiecesPerThread * count());
  Launch launch{kernel, buffers, tasks, pieces, flushes_.load(std::memory_order_relaxed)};
  team_.run(pieces, &Launch::work, &launch);
  return launch.failure;
}

}  // namespace lumen::run
