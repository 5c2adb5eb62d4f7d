// Learning-rate schedules. Pure functions of the step, so resuming needs no state. Proved by
// tests/model/recipe/schedule_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace lumen::model::recipe {

struct Schedule {
  enum class Shape {
    cosine,
    linear,
    constant,
    wsd,           // warmup-stable-decay: the peak, then a linear decay to the floor over the last steps
    inverse_sqrt,  // peak * sqrt(warmup / step); never below the floor
    polynomial,    // (1 - fraction of the steps)^power
    cosine_restarts
  } shape = Shape::cosine;
  double peak = 1e-3;
  double floor = 1e-4;      // reached at the last step, or after decay_steps
  int64_t warmup = 100;     // steps from 0 to the peak
  double warmup_ratio = 0;  // above 0: fraction of all steps instead of `warmup`, until settle_warmup()
  int64_t steps = 2000;     // of the whole run
  // Step at which the floor is reached and held; 0: the end of the run. An extended run keeps its old value, so that
  // its finished steps stay valid.
  int64_t decay_steps = 0;
  int64_t final_steps = 0;  // of wsd: length of the decay; 0: a tenth of the run
  double power = 2;         // of polynomial
  int64_t cycles = 2;       // of cosine_restarts
};

// Aliases from other tools are accepted. Error that lists the known names.
Schedule::Shape schedule_shape(const std::string& name);
const char* schedule_shape_name(Schedule::Shape shape);
std::string schedule_shape_names();  // all, separated by blanks

// The number of warm-up steps; a fraction is rounded up.
int64_t warmup_steps(const Schedule& s);
// Replaces the ratio by a number of steps once the length of the run is known: an extended run keeps that number.
void settle_warmup(Schedule& s);

// Whether the rate reaches the floor at a planned last step: additional steps then run at the floor.
bool ends_at_floor(Schedule::Shape shape);

// `step` counts from 0: the rate of the update that turns step into step + 1.
double learning_rate(const Schedule& s, int64_t step);

}  // namespace lumen::model::recipe
