// Pseudo-random token ids, the same in every run, and the clocks for timing.
#pragma once

#include <ctime>
#include <vector>

#include "model/infer/generate/answer.h"

namespace lumen::model::infer {

class TokenSource {
 public:
  explicit TokenSource(int64_t vocabulary) : vocabulary_(static_cast<uint64_t>(vocabulary)) {}
  text::TokenId next() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return (state_ >> 33) % vocabulary_;
  }
  std::vector<text::TokenId> next(int64_t count) {
    std::vector<text::TokenId> tokens(count);
    for (text::TokenId& t : tokens) t = next();
    return tokens;
  }

 private:
  uint64_t vocabulary_, state_ = 1;
};

// CPU seconds of this process, or elapsed seconds.
inline double seconds_now(bool cpu_time) {
  timespec t{};
  clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

}  // namespace lumen::model::infer
