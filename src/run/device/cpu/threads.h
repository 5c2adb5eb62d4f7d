// The threads of the CPU device, which share the tasks of a launch. Proved by tests/run/device/device_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/threads/team.h"

namespace lumen::run {

using KernelFunction = void (*)(void* const* buffers, int64_t begin, int64_t end, int64_t* status);
using Failure = std::array<int64_t, 2>;  // {code, detail}; code 0: none

class Threads {
 public:
  explicit Threads(int count) : team_(count) {}  // includes the caller of run()

  // Whether later kernels flush subnormal operands and results to zero: processors are a hundred times slower with
  // them.
  void flush_subnormals(bool flushes) { flushes_.store(flushes); }
  int count() const { return team_.count(); }
  // Runs tasks 0 .. tasks-1 and returns the failure of the lowest failing task.
  Failure run(KernelFunction kernel, void* const* buffers, int64_t tasks);

 private:
  Team team_;
  std::atomic<bool> flushes_ = false;
};

}  // namespace lumen::run
