#include "model/infer/session/near_places.h"

#include <algorithm>

#include "base/check.h"
#include "base/round_up.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kStep = 32;

}  // namespace

// Slots for the visible keys, for the step itself, and for the gap left where the ring wraps around.
NearPlaces::NearPlaces(int64_t window, int64_t widest) : window_(window) {
  LUMEN_CHECK(window > 0 && widest > 0);
  const int64_t size = window + 2 * widest;
  positions_.assign(round_up(size, kStep), kEmpty);
}

int64_t NearPlaces::put(int64_t position, int64_t count, int64_t width) {
  LUMEN_CHECK(count > 0 && count <= width && width <= size());
  if (next_ + width > size()) next_ = 0;
  const int64_t first = next_;
  for (int64_t i = 0; i < width; ++i) {
    int32_t& place = positions_[first + i];
    LUMEN_CHECK(place == kEmpty || place + window_ <= position, "a visible key would be overwritten");
    place = i < count ? static_cast<int32_t>(position + i) : kEmpty;
  }
  next_ = first + count;
  return first;
}

bool NearPlaces::rewind(int64_t position) {
  int64_t seen = 0, behind = 0;
  for (size_t i = 0; i < positions_.size(); ++i) {
    int32_t& at = positions_[i];
    if (at != kEmpty && at >= position) at = kEmpty;
    if (at == kEmpty) continue;
    seen += at > position - window_;
    if (at == position - 1) behind = i + 1;
  }
  next_ = behind;
  if (seen >= std::min(position, window_ - 1)) return true;
  std::fill(positions_.begin(), positions_.end(), kEmpty);
  next_ = 0;
  return false;
}

}  // namespace lumen::model::infer
