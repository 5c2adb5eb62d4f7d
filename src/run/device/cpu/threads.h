// Threads that share the tasks of a launch. Whoever is awake takes the next piece; a launch never waits for a thread
// that has not taken one, so a busy machine costs little. Idle threads spin for some microseconds, then sleep.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace lumen::run {

using KernelFunction = void (*)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);
using Failure = std::array<int64_t, 2>;  // {code, detail}; code 0: none

class Threads {
 public:
  explicit Threads(int count);  // the caller of run() is one of them
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // From now on kernels take numbers below the smallest normal one for zeros, and give zeros for them: processors take
  // a hundred times as long otherwise.
  void flush_subnormals(bool flushes) { flushes_.store(flushes); }
  int count() const { return workers_.size() + 1; }
  // Runs tasks 0 .. tasks-1 and returns the failure of the lowest failing task.
  Failure run(KernelFunction kernel, void* const* buffers, int64_t tasks);

 private:
  void work();  // a worker's life
  void take_pieces();

  std::vector<std::thread> workers_;
  std::mutex busy_;  // one launch at a time; a second caller runs alone

  // The open launch. Written only while nobody is active.
  KernelFunction kernel_ = nullptr;
  void* const* buffers_ = nullptr;
  int64_t tasks_ = 0, pieces_ = 0;
  std::mutex failure_mutex_;
  int64_t failed_piece_ = 0;
  Failure failure_{};

  alignas(64) std::atomic<int64_t> next_ = 0;  // piece to take
  alignas(64) std::atomic<int> call_ = 0;      // rises with every launch; workers sleep on it
  alignas(64) std::atomic<int> active_ = 0;    // workers inside the launch
  std::atomic<bool> open_ = false, stop_ = false, flushes_ = false;
};

}  // namespace lumen::run
