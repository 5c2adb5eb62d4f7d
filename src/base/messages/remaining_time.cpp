#include "base/messages/remaining_time.h"

#include <algorithm>

namespace lumen {
namespace {

constexpr double kPace = 10;  // seconds over which the pace of a phase is measured

}  // namespace

double RemainingTime::left(int64_t part, double share, double seconds) {
  if (first_ < 0) first_ = part;
  if (part != part_) {
    part_ = part;
    begin_ = seconds;
    points_.clear();
  }
  points_.push_back({share, seconds});
  while (points_.size() > 2 && seconds - points_[1].seconds >= kPace) points_.pop_front();
  const double spent = seconds - begin_;
  const int64_t after = parts_ - part - 1;
  if (part > first_) {
    const double each = begin_ / double(part - first_);
    return std::max(0.0, each - spent) + each * double(after);
  }
  const double moved = share - points_.front().share, passed = seconds - points_.front().seconds;
  if (moved <= 0 || passed <= 0) return 0;
  const double rest = (1 - share) * passed / moved;
  return rest + (spent + rest) * double(after);
}

}  // namespace lumen
