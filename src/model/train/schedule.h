// Learning rates over the steps of a run. Pure functions of the step, so resuming needs no memory.
// Proved by tests/model/train_test.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace lumen::model {

struct Schedule {
  enum class Shape { cosine, linear, constant } shape = Shape::cosine;
  double peak = 1e-3;
  double floor = 1e-4;   // reached at the last step, or after decay_steps
  int64_t warmup = 100;  // steps from 0 to the peak
  int64_t steps = 2000;  // of the whole run
  // Steps after which the floor is reached and held; 0: those of the whole run. A run that is made longer keeps what it
  // had, so that the steps done before are those of the longer run.
  int64_t decay_steps = 0;
};

Schedule::Shape schedule_shape(const std::string& name);  // Error with the known names
const char* schedule_shape_name(Schedule::Shape shape);

// `step` counts from 0: the rate of the update that turns step into step + 1.
double learning_rate(const Schedule& s, int64_t step);

}  // namespace lumen::model
