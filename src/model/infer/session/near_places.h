// Positions of the slots of a sliding-window KV cache, which holds the latest keys only. Slots are used as a ring
// buffer; the keys of one step are contiguous, so some slots at its end may stay empty. Proved by
// tests/model/infer/near_cache_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lumen::model::infer {

class NearPlaces {
 public:
  static constexpr int32_t kEmpty = 1 << 30;  // larger than every position

  // For layers with a window of `window` positions, and steps of at most `widest` tokens.
  NearPlaces(int64_t window, int64_t widest);
  int64_t size() const { return positions_.size(); }

  // Reserves slots for a step of `width` tokens; the first `count` are at `position` and later, the rest is padding.
  // Returns the first slot.
  int64_t put(int64_t position, int64_t count, int64_t width);
  // Truncates the sequence to `position` tokens. False if not all keys that a token at `position` sees are cached; the
  // cache is cleared then.
  bool rewind(int64_t position);
  std::span<const int32_t> positions() const { return positions_; }

 private:
  int64_t window_, next_ = 0;
  std::vector<int32_t> positions_;  // by slot
};

}  // namespace lumen::model::infer
