// Elapsed seconds of a monotonic clock.
#pragma once

#include <chrono>

namespace lumen {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }  // since the start
  void restart() { begin_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace lumen
