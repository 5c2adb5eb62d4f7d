// The one door through which every thread of the program is started (tools/house.py allows std::thread nowhere else). A
// system that gives no more threads (a limit of processes, no memory for a stack) is an ordinary state: work that
// threads share goes on with fewer of them, and what cannot be done without a thread is an Error. Results never depend
// on how many there are. Proved by tests/base/threads/threads_test.cpp and tests/cli/system/threads_check.py.
//
// May include: base.
// Offers: team.h.
#pragma once

#include <functional>
#include <string_view>
#include <thread>

namespace lumen {

// How many threads are worth having: the cores this process may use, or OMP_NUM_THREADS where it says so.
int usable_cores();

// A thread that is waited for where it goes out of scope.
class Thread {
 public:
  Thread() = default;
  // Error (hardware) where the system gives none; it names the `purpose`, as in "for the server's connections".
  Thread(std::string_view purpose, std::function<void()> work);
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  // Starts it where the system gives a thread; otherwise says so once, and is_running() is false.
  static Thread where_possible(std::function<void()> work);

  bool is_running() const { return thread_.joinable(); }
  void join();  // nothing where it was never started

 private:
  std::thread thread_;
};

// A thread nobody waits for; false where the system gives none.
bool start_detached(std::function<void()> work);

// Calls `work` with the numbers 0, 1, .. of up to `count` threads at once, the caller among them as 0, and returns when
// all are done. As there may be fewer, they take what they do from a counter they share. The first failure is thrown
// on.
void work_together(int64_t count, const std::function<void(int)>& work);

}  // namespace lumen
