#include "model/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lumen::model {

namespace {

constexpr const char* kShapes[] = {"cosine", "linear", "constant"};

}  // namespace

Schedule::Shape schedule_shape(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    if (name == kShapes[i]) return static_cast<Schedule::Shape>(i);
    known += fmt::format("{}{}", i ? ", " : "", kShapes[i]);
  }
  throw Error(Exit::usage, fmt::format("unknown schedule '{}'", name), "known schedules: " + known);
}

const char* schedule_shape_name(Schedule::Shape shape) {
  return kShapes[static_cast<size_t>(shape)];
}

double learning_rate(const Schedule& s, int64_t step) {
  if (step < s.warmup) return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup + 1);
  const double span =
      static_cast<double>(std::max<int64_t>(1, (s.decay_steps > 0 ? s.decay_steps : s.steps) - s.warmup));
  const double done = std::clamp(static_cast<double>(step - s.warmup) / span, 0.0, 1.0);
  switch (s.shape) {
    case Schedule::Shape::constant:
      return s.peak;
    case Schedule::Shape::linear:
      return s.peak + (s.floor - s.peak) * done;
    case Schedule::Shape::cosine:
      break;
  }
  return s.floor + 0.5 * (1 + std::cos(std::numbers::pi * done)) * (s.peak - s.floor);
}

}  // namespace lumen::model
