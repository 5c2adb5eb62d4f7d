// Learns rotations: gradients of the rounding cost, Cayley steps with a cosine-decayed rate, and the best rotations
// found. Proved by tests/model/compress/rotate/learn_rotations_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "model/compress/rotate/rotated_weights.h"

namespace lumen::model::compress {

// The cost of rotations.
class RotationObjective {
 public:
  virtual ~RotationObjective() = default;
  // The cost of the current rotations, over all data.
  virtual double value() = 0;
  // Adds the gradients of the next step's data to the rotations'. Returns the cost on these data.
  virtual double add_gradients() = 0;
};

struct LearnRotationOptions {
  int steps = 100;
  double rate = 1;  // initial, of Cayley steps
  double momentum = 0;
};

struct LearnedRotations {
  std::vector<std::vector<double>> rotations;  // by space
  double before = 0, after = 0;                // the objective's value
  int step = 0;                                // with the best value; 0: the start
};

struct RotationProgress {
  int step = 0, steps = 0;
  double cost = 0;  // of the step's data
};

// Starts with the current rotations; never returns worse ones. `stop`: the best so far is returned.
LearnedRotations learn_rotations(RotatedWeights& weights, RotationObjective& objective,
                                 const LearnRotationOptions& options,
                                 const std::function<void(const RotationProgress&)>& progress = {},
                                 const std::function<bool()>& stop = {});

}  // namespace lumen::model::compress
