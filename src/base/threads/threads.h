// The only place that starts threads (tools/house.py allows std::thread nowhere else). A system that refuses more
// threads (a process limit, no memory for a stack) is an ordinary state: shared work continues with fewer threads, and
// work that needs a thread of its own is an Error. Results never depend on the thread count. Proved by
// tests/base/threads/threads_test.cpp and tests/cli/system/threads_check.py.
//
// May include: base.
// Offers: team.h.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace lumen {

// The default thread count: the cores this process may use, or OMP_NUM_THREADS if set.
int usable_cores();

// A thread that is joined at the end of its scope.
class Thread {
 public:
  Thread() = default;
  // Error (hardware) when the system starts none; it contains `purpose`, as in "for the server's connections".
  Thread(std::string_view purpose, std::function<void()> work);
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  // Starts it if the system can; otherwise warns once, and is_running() is false.
  static Thread where_possible(std::function<void()> work);

  bool is_running() const { return thread_.joinable(); }
  void join();  // no effect if it was never started

 private:
  std::thread thread_;
};

// A thread that is never joined; false when the system starts none.
bool start_detached(std::function<void()> work);

// Calls `work` with the numbers 0, 1, .. of up to `count` threads at once, the caller as number 0, and returns when all
// are done. Because there may be fewer threads, they take their work from a shared counter. The first exception is
// rethrown.
void work_together(int64_t count, const std::function<void(int)>& work);

}  // namespace lumen
