#include "run/engine/cache/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "base/threads/threads.h"

namespace lumen::run {

namespace {

thread_local bool is_within = false;

}  // namespace

// Uses its own threads: compiling a kernel takes much longer than starting them, and other loops keep the shared team.
void in_parallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  work_together(is_within ? 1 : std::min<size_t>(count, std::max(1, threads)), [&](int) {
    const bool was_within = std::exchange(is_within, true);
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
    is_within = was_within;
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lumen::run
