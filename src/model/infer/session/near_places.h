// Which position each place of a cache holds that remembers the latest keys only, of layers with a window. Places are
// used in a ring; the keys of one step lie side by side, so that at its end some may stay empty. Proved by
// tests/model/infer/near_cache_test.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lumen::model {

class NearPlaces {
 public:
  static constexpr int32_t kEmpty = 1 << 30;  // behind every position

  // For layers that see `window` positions at most, and steps of `widest` tokens at most.
  NearPlaces(int64_t window, int64_t widest);
  int64_t size() const { return positions_.size(); }

  // Room for a step of `width` tokens, the first `count` of which stand at `position` and behind it and stay. Returns
  // the first place.
  int64_t put(int64_t position, int64_t count, int64_t width);
  // The sequence ends before `position` from now on. False when not all is there that a token at `position` may see;
  // then everything is forgotten.
  bool rewind(int64_t position);
  std::span<const int32_t> positions() const { return positions_; }

 private:
  int64_t window_, next_ = 0;
  std::vector<int32_t> positions_;  // by place
};

}  // namespace lumen::model
