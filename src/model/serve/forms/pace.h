// The times of a request, for APIs that report them with its answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/stopwatch.h"

namespace lumen::model::serve {

// Measures from its construction. All numbers are in seconds.
class Pace {
 public:
  // To be called with every piece of the answer.
  void saw() {
    last_ = watch_.seconds();
    if (first_ < 0) first_ = last_;
  }
  double whole() const { return watch_.seconds(); }
  double prompt() const { return std::max(0.0, first_); }           // until the first piece, including waiting
  double writing() const { return std::max(0.0, last_ - first_); }  // from the first piece to the last one

 private:
  Stopwatch watch_;
  double first_ = -1, last_ = -1;
};

// "2026-11-29T14:30:00Z" of seconds since 1970.
std::string utc_time(int64_t seconds);

}  // namespace lumen::model::serve
