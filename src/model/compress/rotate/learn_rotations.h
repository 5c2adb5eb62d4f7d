// The way from rotations to better ones: gradients of what rounding costs, Cayley steps with a rate that falls to 0 by
// a cosine, and the best that was seen. Proved by tests/model/compress/rotate/learn_rotations_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "model/compress/rotate/rotated_weights.h"

namespace lumen::model {

// What rotations cost.
class RotationObjective {
 public:
  virtual ~RotationObjective() = default;
  // With the rotations as they are set, over everything there is.
  virtual double value() = 0;
  // Adds its gradients to the rotations', of what the next step looks at. What it costs there.
  virtual double add_gradients() = 0;
};

struct LearnRotationOptions {
  int steps = 100;
  double rate = 1;  // of Cayley steps, at first
  double momentum = 0;
};

struct LearnedRotations {
  std::vector<std::vector<double>> rotations;  // by space
  double before = 0, after = 0;                // the objective's value
  int step = 0;                                // after which the best was seen; 0: where it began
};

struct RotationProgress {
  int step = 0, steps = 0;
  double cost = 0;  // of what the step looked at
};

// Begins with the rotations that are set. Never worse than those. `stop`: what was best so far is what is returned.
LearnedRotations learn_rotations(RotatedWeights& weights, RotationObjective& objective,
                                 const LearnRotationOptions& options,
                                 const std::function<void(const RotationProgress&)>& progress = {},
                                 const std::function<bool()>& stop = {});

}  // namespace lumen::model
