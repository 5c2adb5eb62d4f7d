// Learning rates over the steps of a run. Pure functions of the step, so resuming needs no memory.
// Proved by tests/model/recipe/schedule_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace lumen::model {

struct Schedule {
  enum class Shape {
    cosine,
    linear,
    constant,
    wsd,           // the peak, then a straight line to the floor over the last steps
    inverse_sqrt,  // peak * sqrt(warmup / step); never below the floor
    polynomial,    // (1 - share of the steps)^power
    cosine_restarts
  } shape = Shape::cosine;
  double peak = 1e-3;
  double floor = 1e-4;      // reached at the last step, or after decay_steps
  int64_t warmup = 100;     // steps from 0 to the peak
  double warmup_ratio = 0;  // above 0: their share of all steps instead, until settle_warmup()
  int64_t steps = 2000;     // of the whole run
  // Steps after which the floor is reached and held; 0: those of the whole run. A run that is made longer keeps what it
  // had, so that the steps done before are those of the longer run.
  int64_t decay_steps = 0;
  int64_t final_steps = 0;  // of wsd: those in which the rate falls; 0: a tenth of the run
  double power = 2;         // of polynomial
  int64_t cycles = 2;       // of cosine_restarts
};

// Other tools' names are taken as well. Error with the known names.
Schedule::Shape schedule_shape(const std::string& name);
const char* schedule_shape_name(Schedule::Shape shape);

// Steps of the warm-up; a share of all is rounded up.
int64_t warmup_steps(const Schedule& s);
// Makes a number of steps of a share, when it is known how many there are: a run that is made longer keeps it.
void settle_warmup(Schedule& s);

// Whether rates fall to the floor at a planned last step: then more steps than planned run at the floor.
bool ends_at_floor(Schedule::Shape shape);

// `step` counts from 0: the rate of the update that turns step into step + 1.
double learning_rate(const Schedule& s, int64_t step);

}  // namespace lumen::model
