#include "run/engine/cache/in_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>

namespace lumen::run {

void in_parallel(size_t count, int threads, const std::function<void(size_t)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
#pragma omp parallel for schedule(dynamic, 1) num_threads(std::max(1, threads)) if (count > 1 && threads > 1)
  for (size_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lumen::run
