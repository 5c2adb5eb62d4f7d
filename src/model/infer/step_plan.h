// Which function of a family a session runs, and with what caches: `step`, which remembers everything, or `step_near`,
// whose layers with a window remember the latest only, where the family has it and that saves memory.
#pragma once

#include "model/infer/session.h"

namespace lumen::model {

struct StepPlan {
  graph::Graph graph;
  graph::Bindings symbols;  // all but T and R
  int64_t window = 0;       // of the layers that remember the latest only; 0: none do
};

StepPlan plan_step(const LoadedModel& loaded, const SessionOptions& options);

// The widest step of a session.
int64_t widest_step(const SessionOptions& options);

}  // namespace lumen::model
