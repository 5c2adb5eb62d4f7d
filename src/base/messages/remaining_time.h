// An estimate of the time that work in equal parts still needs, where each part has phases whose shares of a part are
// guesses. Once parts are done, their mean is what a part takes; before, the pace of the current phase counts, because
// phases before it may have been far faster. Proved by tests/base/messages/remaining_time_test.cpp.
#pragma once

#include <cstdint>
#include <deque>

namespace lumen {

class RemainingTime {
 public:
  explicit RemainingTime(int64_t parts) : parts_(parts) {}

  // Seconds left, `seconds` after the start of the work, when `share` (0..1) of part `part` is done. Parts may begin
  // above 0, for work that goes on. 0 where nothing can be said yet. Calls are in order of time.
  double left(int64_t part, double share, double seconds);

 private:
  struct Point {
    double share = 0, seconds = 0;
  };
  const int64_t parts_;
  int64_t first_ = -1, part_ = -1;
  double begin_ = 0;          // of the current part, in seconds
  std::deque<Point> points_;  // of the current part: those of the latest seconds, and one before
};

}  // namespace lumen
