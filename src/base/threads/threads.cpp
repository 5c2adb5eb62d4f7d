#include "base/threads/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace lumen {
namespace {

constexpr int kMostCores = 4096;

int cores_of_process() {
  cpu_set_t some;
  if (::sched_getaffinity(0, sizeof some, &some) == 0) return std::max(1, CPU_COUNT(&some));
  return std::max(1U, std::thread::hardware_concurrency());  // more processors than cpu_set_t can hold
}

// Also used for std::bad_alloc, when there is no memory for a thread's resources.
void tell_of_fewer(const char* reason) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true))
    warn(fmt::format("the system allows no more threads ({}); work continues with fewer", reason));
}

// False when the system cannot start a thread.
bool start(std::thread* thread, std::function<void()> work, std::string* reason) {
  try {
    *thread = std::thread(std::move(work));
    return true;
  } catch (const std::system_error& error) {
    *reason = error.code().message();
  } catch (const std::bad_alloc&) {
    *reason = "no memory";
  }
  return false;
}

}  // namespace

int usable_cores() {
  static const int cores = [] {
    const char* const asked = std::getenv("OMP_NUM_THREADS");
    const int number = asked ? std::atoi(asked) : 0;  // "4,2": the first is for outer loops
    return number > 0 ? std::min(number, kMostCores) : cores_of_process();
  }();
  return cores;
}

Thread::Thread(std::string_view purpose, std::function<void()> work) {
  std::string reason;
  if (!start(&thread_, std::move(work), &reason))
    throw Error(Exit::hardware, fmt::format("the system gives no thread {}: {}", purpose, reason),
                "raise the limit of processes and threads (`ulimit -u`), or end other programs");
}

Thread& Thread::operator=(Thread&& other) noexcept {
  join();
  thread_ = std::move(other.thread_);
  return *this;
}

Thread Thread::where_possible(std::function<void()> work) {
  Thread out;
  std::string reason;
  if (!start(&out.thread_, std::move(work), &reason)) tell_of_fewer(reason.c_str());
  return out;
}

void Thread::join() {
  if (thread_.joinable()) thread_.join();
}

bool start_detached(std::function<void()> work) {
  std::thread thread;
  std::string reason;
  if (!start(&thread, std::move(work), &reason)) return false;
  thread.detach();
  return true;
}

void work_together(int64_t count, const std::function<void(int)>& work) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto one = [&](int number) {
    try {
      work(number);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<Thread> others;
    others.reserve(std::max<int64_t>(0, count - 1));  // so that nothing throws while threads run
    for (int number = 1; number < count; ++number) {
      others.push_back(Thread::where_possible([&one, number] { one(number); }));
      if (!others.back().is_running()) break;
    }
    one(0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lumen
