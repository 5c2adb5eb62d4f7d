#include "model/recipe/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::model::recipe {

namespace {

using Shape = Schedule::Shape;

constexpr const char* kShapes[] = {"cosine",       "linear",     "constant",       "wsd",
                                   "inverse_sqrt", "polynomial", "cosine_restarts"};
constexpr std::pair<const char*, Shape> kOtherNames[] = {
    {"constant_with_warmup", Shape::constant},
    {"warmup_stable_decay", Shape::wsd},
    {"cosine_with_min_lr", Shape::cosine},
    {"cosine_with_restarts", Shape::cosine_restarts},
};
constexpr double kTimescale = 10'000;  // of inverse_sqrt without a warm-up

double cosine(double share) {
  return 0.5 * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace

Shape schedule_shape(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    if (name == kShapes[i]) return static_cast<Shape>(i);
    known += fmt::format("{}{}", i ? ", " : "", kShapes[i]);
  }
  for (const auto& [other, shape] : kOtherNames)
    if (name == other) return shape;
  throw Error(Exit::usage, fmt::format("unknown schedule '{}'", name), "known schedules: " + known);
}

const char* schedule_shape_name(Shape shape) {
  return kShapes[ordinal(shape)];
}

std::string schedule_shape_names() {
  return fmt::format("{}", fmt::join(kShapes, " "));
}

int64_t warmup_steps(const Schedule& s) {
  if (s.warmup_ratio <= 0) return s.warmup;
  const double last = s.decay_steps > 0 ? s.decay_steps : s.steps;
  return std::llround(std::ceil(s.warmup_ratio * last));
}

void settle_warmup(Schedule& s) {
  s.warmup = warmup_steps(s);
  s.warmup_ratio = 0;
}

bool ends_at_floor(Shape shape) {
  return shape != Shape::constant && shape != Shape::inverse_sqrt;
}

double learning_rate(const Schedule& s, int64_t step) {
  const int64_t warmup = warmup_steps(s);
  if (step < warmup) return s.peak * (step + 1) / (warmup + 1);
  const int64_t last = s.decay_steps > 0 ? s.decay_steps : s.steps;
  const double span = std::max<int64_t>(1, last - warmup);
  const double done = std::clamp((step - warmup) / span, 0.0, 1.0);
  const auto between = [&](double share) { return s.floor + share * (s.peak - s.floor); };
  switch (s.shape) {
    case Shape::constant:
      return s.peak;
    case Shape::linear:
      return s.peak + (s.floor - s.peak) * done;
    case Shape::wsd: {
      const double falling = s.final_steps > 0 ? s.final_steps : std::max<int64_t>(1, last / 10);
      return between(std::clamp((last - step) / falling, 0.0, 1.0));
    }
    case Shape::inverse_sqrt: {
      const double scale = warmup > 0 ? warmup : kTimescale;
      return std::max(s.floor, s.peak / std::sqrt(1 + (step - warmup) / scale));
    }
    case Shape::polynomial:
      return between(std::pow(1 - done, s.power));
    case Shape::cosine_restarts:
      return done >= 1 ? s.floor : between(cosine(std::fmod(done * s.cycles, 1.0)));
    case Shape::cosine:
      break;
  }
  return s.floor + cosine(done) * (s.peak - s.floor);
}

}  // namespace lumen::model::recipe
