#include "model/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lumen::model {

Schedule::Shape schedule_shape(const std::string& name) {
  if (name == "cosine") return Schedule::Shape::cosine;
  if (name == "linear") return Schedule::Shape::linear;
  if (name == "constant") return Schedule::Shape::constant;
  throw Error(Exit::usage, fmt::format("unknown schedule '{}'", name), "known schedules: cosine, linear, constant");
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
